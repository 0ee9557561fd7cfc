"""Sandboxes that are booted before a trial needs them."""

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest

from app.adapters.sandbox import pool
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Job, Mode
from tests.contracts.sandbox import LIMITS, SQUARE, metrics, problem

JOB = Job(problem(), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)


@pytest.fixture
def sandbox() -> Iterator[ProcessSandbox]:
    opened = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=1, max_trials=2))
    yield opened
    opened.close()


def wait_for_ready(sandbox: ProcessSandbox, count: int) -> None:
    until = time.monotonic() + 60.0
    while sandbox.ready_sandboxes() < count:
        assert time.monotonic() < until, (
            f"{sandbox.ready_sandboxes()} sandboxes are ready, not {count}"
        )
        time.sleep(0.02)


def child_processes() -> int:
    return len(psutil.Process().children())


def test_a_trial_after_a_replaced_sandbox_pays_no_boot(sandbox: ProcessSandbox) -> None:
    boots = []
    for trial in range(5):
        outcome = sandbox.run(JOB)
        assert metrics(outcome) == {"combined_score": 25}
        boots.append(outcome.boot_seconds > 0.0)
        if trial:
            wait_for_ready(sandbox, 1)
    assert boots == [True] + [False] * 4


def test_an_idle_sandbox_ends_at_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_seconds = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_seconds)
    monkeypatch.setattr(pool, "time", clock)
    monkeypatch.setattr(pool, "_LOOKING_SECONDS", 0.05)
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0, max_age_seconds=3600.0))
    before = child_processes()
    sandbox.run(JOB)
    assert sandbox.ready_sandboxes() == 1

    ahead_seconds = 3600.0
    until = time.monotonic() + 60.0
    while sandbox.ready_sandboxes() or child_processes() > before:
        assert time.monotonic() < until
        time.sleep(0.05)

    ahead_seconds = 0.0
    sandbox.run(JOB)
    sandbox.close()
    assert child_processes() == before


def test_closing_ends_spares_and_those_still_booting() -> None:
    before, threads = child_processes(), threading.active_count()
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=2, max_trials=2))
    sandbox.run(JOB)
    sandbox.run(JOB)
    sandbox.close()
    assert child_processes() == before
    assert threading.active_count() <= threads
