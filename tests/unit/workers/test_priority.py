"""A worker and its trials let other programs go first, whichever way Linux schedules sessions."""

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

for nice in sys.argv[1:]:
    if os.fork() == 0:
        os.setsid()
        _lower_priority(int(nice) if nice else None)
        show()
        if os.fork() == 0:
            limits.begin_session()
            show()
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
"""


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
    settings = ("7", "0", "")
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *settings], check=True, capture_output=True, text=True
    )
    words = [line.split() for line in ended.stdout.splitlines()]
    found = [Priority(int(own), group, int(last)) for own, group, _, last in words]
    pairs = map(Pair, found[::2], found[1::2])
    return dict(zip(settings, pairs, strict=True))


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
