"""Child processes: how long the end of a program is waited for that ignores its signal."""

import signal
import subprocess
from pathlib import Path

import pytest

from app.embedded.children import ChildProcess, Ending

pytestmark = pytest.mark.timing


class Clock:
    """Seconds that pass only while a caller waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Unresponsive:
    """A program in a session of its own that ends by SIGKILL only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.pid = self._process.pid
        self.signals: list[signal.Signals] = []

    def poll(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None:
            self._clock.now += timeout
            raise subprocess.TimeoutExpired("sleep", timeout)
        return self._process.wait()


@pytest.mark.parametrize(("together", "seconds"), [(True, 5.0), (False, 15.0)])
def test_programs_that_are_signalled_together_share_one_grace(
    tmp_path: Path, together: bool, seconds: float
) -> None:
    clock = Clock()
    programs = [Unresponsive(clock) for _ in range(3)]
    ending = Ending(signal.SIGKILL, signal.SIGTERM, 5.0)
    children = [
        ChildProcess("sleep", program, tmp_path / f"{program.pid}.pid", ending, clock)  # type: ignore[arg-type]
        for program in programs
    ]
    for child in children if together else ():
        child.request_end()
    for child in children:
        child.stop()

    assert clock.now - 100.0 == seconds
    assert [program.poll() for program in programs] == [-signal.SIGKILL] * 3
    assert [program.signals for program in programs] == [[signal.SIGTERM]] * 3
