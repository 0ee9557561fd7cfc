"""Ctrl-C, asked for once, is a wish; asked for twice, an order."""

import signal
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Turns the first interrupt into a flag that loops look at; the second one raises."""

    def __init__(self) -> None:
        """Changes nothing yet."""
        self.asked = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # as `signal` returned it

    def _ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  a handler
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
