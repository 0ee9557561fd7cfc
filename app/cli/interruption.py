"""Interrupts of a command: the first one is a request, the second one ends it."""

import os
import signal
import stat
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Turns the first interrupt into a flag that loops read; the second interrupt raises."""

    def __init__(self) -> None:
        """Installs nothing yet."""
        self.requested = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "Interruption":
        self._before = {
            name: signal.signal(name, self._handle)
            for name in SIGNALS
            # `nohup` makes a process ignore a signal, and the process goes on ignoring it.
            if signal.getsignal(name) is not signal.SIG_IGN
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]  # as `signal` returned it

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  a handler
        if number == signal.SIGHUP:
            leave_terminal()
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def leave_terminal() -> None:
    """Lets the output of this process go nowhere, because its terminal was closed.

    A write to a closed terminal is an error, which would end the command before the run is paused.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        # `isatty` returns False for a terminal that was closed.
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)
