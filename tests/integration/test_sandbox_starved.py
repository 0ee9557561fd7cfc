"""A trial that the machine gave no time is no time-out of its program."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest

from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits, Mode
from app.ports.protocols import Starved
from tests.integration.test_sandbox_process import sandbox_behind

pytestmark = pytest.mark.timing

WALL_SECONDS = 1.0
BRIEF = Limits(wall_seconds=0.5)
EVALUATOR = Evaluator(
    "starved",
    {
        "evaluator.py": b"def evaluate(path):\n"
        b"    text = open(path).read()\n"
        b"    exec(text)\n"
        b"    return {'combined_score': 1.0}\n"
    },
)
COMPUTES, SLEEPS = b"while True: pass\n", b"import time; time.sleep(600)\n"
SPENDS = b"""
import time
while True:
    spent = time.process_time()
    print(spent, flush=True)
    while time.process_time() < spent + 0.02: pass
"""


def job(source: bytes) -> Job:
    limits = Limits(wall_seconds=WALL_SECONDS)
    return Job(EVALUATOR, "evaluate", ((".py", source),), limits, Mode.COMPATIBLE)


@pytest.fixture
def sandbox() -> Iterator[ProcessSandbox]:
    """A sandbox that has booted, on one processor; so is all that this thread starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    opened = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))
    try:
        assert opened.run(job(b"pass\n")).failure is None
        yield opened
    finally:
        opened.close()
        os.sched_setaffinity(0, before)


@contextmanager
def crowd(size: int) -> Iterator[None]:
    """Processes that compute on the processor of this thread."""
    crowding = []
    try:
        for _ in range(size):
            pid = os.fork()
            if pid == 0:
                os.setsid()  # the kernel divides processors among sessions
                signal.alarm(60)  # should the test be killed
                while True:
                    pass
            crowding.append(pid)
        yield
    finally:
        for pid in crowding:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_program_that_got_no_processor_is_starved(sandbox: ProcessSandbox) -> None:
    with crowd(9), pytest.raises(Starved, match="the machine is too busy") as raised:
        sandbox.run(job(COMPUTES))

    failure = raised.value.outcome.failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT
    assert "the machine gave it" in failure.detail


@pytest.mark.parametrize("level", ["privileged", "unprivileged", "bare"])
def test_the_processor_time_of_a_program_that_is_ended_is_known(level: str) -> None:
    opened = sandbox_behind(level)
    try:
        outcome = opened.run(replace(job(SPENDS), mode=Mode.GUARDED, limits=BRIEF))
    except Starved as starved:
        outcome = starved.outcome
    finally:
        opened.close()

    printed = outcome.stdout.split()
    assert printed
    assert outcome.cpu_seconds >= float(printed[-1])


def test_a_program_that_sleeps_on_a_crowded_machine_is_a_timeout(sandbox: ProcessSandbox) -> None:
    with crowd(3):
        outcome = sandbox.run(job(SLEEPS))

    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize("program", [COMPUTES, SLEEPS])
def test_a_sandbox_that_stood_still_is_starved(sandbox: ProcessSandbox, program: bytes) -> None:
    zygotes = psutil.Process().children(recursive=True)
    stop = _later(0.4, lambda: [zygote.suspend() for zygote in zygotes])
    resume = _later(WALL_SECONDS + 1.0, lambda: [zygote.resume() for zygote in zygotes])

    with pytest.raises(Starved):
        sandbox.run(job(program))

    stop.join()
    resume.join()


def _later(seconds: float, act: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer
