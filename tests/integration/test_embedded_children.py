"""Child processes: how long those are waited for that do not end when they are asked."""

import signal
import subprocess
from pathlib import Path

import pytest

from app.embedded.children import ChildProcess, Ending


class Clock:
    """Seconds that pass only while somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Deaf:
    """A program in a session of its own that ends by SIGKILL only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.pid = self._process.pid
        self.asked: list[signal.Signals] = []

    def poll(self) -> int | None:
        return self._process.poll()

    def send_signal(self, one: signal.Signals) -> None:
        self.asked.append(one)

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None:
            self._clock.now += timeout
            raise subprocess.TimeoutExpired("sleep", timeout)
        return self._process.wait()


@pytest.mark.parametrize(("together", "seconds"), [(True, 5.0), (False, 15.0)])
def test_programs_that_are_asked_together_are_waited_for_together(
    tmp_path: Path, together: bool, seconds: float
) -> None:
    clock = Clock()
    programs = [Deaf(clock) for _ in range(3)]
    ending = Ending(signal.SIGKILL, signal.SIGTERM, 5.0)
    children = [
        ChildProcess("deaf", one, tmp_path / f"{one.pid}.pid", ending, clock)  # type: ignore[arg-type]
        for one in programs
    ]
    for child in children if together else ():
        child.ask()
    for child in children:
        child.stop()

    assert clock.now - 100.0 == seconds
    assert [one.poll() for one in programs] == [-signal.SIGKILL] * 3
    assert [one.asked for one in programs] == [[signal.SIGTERM]] * 3
