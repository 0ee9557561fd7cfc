"""A worker and its trials let other programs go first, whichever way Linux schedules sessions."""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

GROUP = Path("/proc/self/autogroup")
SCRIPT = """
import os, pathlib, sys
from workers.harness import limits
from workers.lifecycle import _lower_priority

def show():
    group = pathlib.Path("/proc/self/autogroup")
    session = group.read_text() if group.exists() else "none nice 0"
    print(os.getpriority(os.PRIO_PROCESS, 0), *session.split(), flush=True)

_lower_priority(int(sys.argv[1]) if sys.argv[1:] else None)
show()
if os.fork() == 0:
    limits.begin_session()
    show()
    os._exit(0)
os.wait()
"""


@dataclass(frozen=True)
class Priority:
    """The `nice` values of a process and of its session, and the name of the session's group."""

    process: int
    group: str
    session: int


@functools.cache
def priorities(*nice: str) -> tuple[Priority, Priority]:
    """Returns those of a worker with a setting, and of a trial that it forks."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *nice],
        check=True,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    words = [line.split() for line in ended.stdout.splitlines()]
    worker, trial = (Priority(int(own), group, int(last)) for own, group, _, last in words)
    return worker, trial


@pytest.mark.skipif(not GROUP.exists(), reason="this kernel does not schedule sessions as groups")
def test_a_trial_begins_a_session_that_has_the_priority_of_its_workers() -> None:
    worker, trial = priorities("7")

    assert worker.session == trial.session == 7
    assert worker.group != trial.group


def test_a_worker_lowers_its_priority_and_never_raises_it() -> None:
    started_with = os.getpriority(os.PRIO_PROCESS, 0)

    assert [one.process for one in priorities("7")] == [max(7, started_with)] * 2
    assert [one.process for one in priorities("0")] == [started_with] * 2


def test_a_worker_without_the_setting_keeps_the_priority_it_was_started_with() -> None:
    worker, trial = priorities()

    assert worker.process == trial.process == os.getpriority(os.PRIO_PROCESS, 0)
    assert worker.session == trial.session == 0
