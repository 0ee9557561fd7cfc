"""Sandboxes that are booted before a trial needs them."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.adapters.sandbox.warm_sandbox import WarmSandbox
from app.domain.problem import EvaluatorBroken, Job, Limits, Mode
from app.ports.protocols import NEVER
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


def test_the_first_job_of_a_kind_boots_no_spare(
    sandbox: ProcessSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, booted = sandbox._pool._start, []

    def counted(job: Job, numpy: bool) -> WarmSandbox:
        booted.append(job)
        return start(job, numpy)

    monkeypatch.setattr(sandbox._pool, "_start", counted)
    for mode in Mode:
        for memory_mib in (200, 201):
            limits = replace(LIMITS, memory_mib=memory_mib)
            sandbox.run(replace(JOB, mode=mode, limits=limits))
    assert sandbox.ready_sandboxes() <= 2  # one that may work and one that may be kept
    sandbox.close()
    assert len(booted) == 4  # none is a spare


def test_there_are_never_more_sandboxes_than_allowed(sandbox: ProcessSandbox) -> None:
    before, most = child_processes(), 0
    for number in range(7):
        digest = f"problem {number % 3}"
        sandbox.run(replace(JOB, evaluator=problem(digest=digest)))
        most = max(most, sandbox.ready_sandboxes())
    assert most <= 2
    until = time.monotonic() + 60.0
    while child_processes() - before > 2 and time.monotonic() < until:  # those that are ending
        time.sleep(0.05)
    assert child_processes() - before <= 2


def test_a_trial_never_waits_for_the_boot_of_a_spare(tmp_path: Path) -> None:
    """From its second boot on the evaluator is imported when the test says so."""
    slow = f"""
import os, time
try:
    os.mkdir({str(tmp_path / "booted")!r})
except OSError:
    while not os.path.exists({str(tmp_path / "go")!r}):
        time.sleep(0.05)
""".encode()
    pool = PoolSettings(max_sandboxes=2, spares=1, max_trials=5)
    sandbox = ProcessSandbox(pool, levels=("bare",), engine=())
    text = slow + b"def evaluate(path):\n    return {'combined_score': 1.0}\n"
    job = replace(JOB, evaluator=problem(text, "slow"))
    for _ in range(4):
        sandbox.run(job)  # and, at the last, a spare begins to boot
    assert sandbox._pool._booting
    assert sandbox.run(job).boot_seconds == 0.0
    assert sandbox.ready_sandboxes() == 0
    (tmp_path / "go").mkdir()
    sandbox.close()


def test_a_spare_is_booted_when_a_sandbox_nears_its_end() -> None:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=1, max_trials=10))
    ready = []
    for _ in range(8):
        sandbox.run(JOB)
        ready.append(len(sandbox._pool._booting) + sandbox.ready_sandboxes())
    sandbox.close()
    assert ready == [1] * 7 + [2]


def test_a_spare_is_kept_ready_for_a_problem_that_lost_a_sandbox() -> None:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=1))
    sandbox.run(JOB)
    sandbox._pool._give_back(sandbox._pool._take(JOB, fresh=False, stop=NEVER), fit=False)
    sandbox.run(JOB)
    wait_for_ready(sandbox, 2)
    sandbox.close()


def test_an_idle_sandbox_ends_at_its_age() -> None:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0, max_age_seconds=2.0))
    before = child_processes()
    sandbox.run(JOB)
    assert sandbox.ready_sandboxes() == 1
    until = time.monotonic() + 60.0
    while sandbox.ready_sandboxes() or child_processes() > before:
        assert time.monotonic() < until
        time.sleep(0.05)
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


def test_a_spare_that_cannot_boot_is_reported_by_the_trial_that_needs_it(
    sandbox: ProcessSandbox,
) -> None:
    broken = replace(JOB, evaluator=problem(b"import nowhere\n", "broken"))
    for _ in range(3):
        with pytest.raises(EvaluatorBroken):
            sandbox.run(broken)
    assert metrics(sandbox.run(replace(JOB, limits=Limits()))) == {"combined_score": 25}
