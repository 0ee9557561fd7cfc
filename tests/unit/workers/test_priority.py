"""A worker and its trials let other programs go first, whichever way Linux schedules sessions."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from workers.harness import limits
from workers.lifecycle import _lower_priority

GROUP = Path("/proc/self/autogroup")


@dataclass(frozen=True)
class Priority:
    """The `nice` values of a process and of its session, and the name of the session's group."""

    process: int
    group: str
    session: int


@dataclass(frozen=True)
class Pair:
    """Those of a worker, and of a trial that it forks."""

    worker: Priority
    trial: Priority


@pytest.fixture(scope="module")
def priorities() -> dict[str, Pair]:
    """By the setting of a worker, which is empty where there is none."""
    return {setting: _pair(setting) for setting in ("7", "0", "")}


def _pair(setting: str) -> Pair:
    reading, writing = os.pipe()

    def show() -> None:
        session = GROUP.read_text() if GROUP.exists() else "none nice 0"
        os.write(writing, f"{os.getpriority(os.PRIO_PROCESS, 0)} {session.strip()}\n".encode())

    def trial() -> None:
        limits.begin_session()
        show()

    def worker() -> None:
        os.setsid()
        _lower_priority(int(setting) if setting else None)
        show()
        _forked(trial)

    _forked(worker)
    os.close(writing)
    with open(reading) as shown:
        words = [line.split() for line in shown]
    [mine, its] = [Priority(int(own), group, int(last)) for own, group, _, last in words]
    return Pair(mine, its)


def _forked(work: Callable[[], None]) -> None:
    """Does something in a process that is forked from this one, and waits for its end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.skipif(not GROUP.exists(), reason="this kernel does not schedule sessions as groups")
def test_a_trial_begins_a_session_that_has_the_priority_of_its_workers(
    priorities: dict[str, Pair],
) -> None:
    pair = priorities["7"]

    assert pair.worker.session == pair.trial.session == 7
    assert pair.worker.group != pair.trial.group


def test_a_worker_lowers_its_priority_and_never_raises_it(priorities: dict[str, Pair]) -> None:
    started_with = os.getpriority(os.PRIO_PROCESS, 0)
    lowered, kept = priorities["7"], priorities["0"]

    assert lowered.worker.process == lowered.trial.process == max(7, started_with)
    assert kept.worker.process == kept.trial.process == started_with


def test_a_worker_without_the_setting_keeps_the_priority_it_was_started_with(
    priorities: dict[str, Pair],
) -> None:
    pair = priorities[""]

    assert pair.worker.process == pair.trial.process == os.getpriority(os.PRIO_PROCESS, 0)
    assert pair.worker.session == pair.trial.session == 0
