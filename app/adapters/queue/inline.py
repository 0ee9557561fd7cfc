"""Rings in this process: first in, first out, one at a time."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from app.ports.protocols import Step


class InlineExecutor:
    """Keeps the bells until `drain` answers them.

    With one process and one order, the same seed gives the same run.  Not for several threads.
    """

    def __init__(self) -> None:
        """Begins silent."""
        self._bells: deque[tuple[Step, int]] = deque()

    def submit(self, step: Step, subjects: Sequence[int], *, together: int = 1) -> None:  # noqa: ARG002
        """Adds one bell a subject to the end of the queue, however many may share one."""
        self._bells.extend((step, subject) for subject in subjects)

    @property
    def ringing(self) -> bool:
        """Whether a bell waits to be answered."""
        return bool(self._bells)

    def drain(self, table: Mapping[Step, Callable[[int], None]], until: Callable[[], bool]) -> None:
        """Answers bells, and those rung meanwhile, until none is left or `until()` holds.

        `until` is asked before each bell.  An exception of a step is passed on; its bell is gone,
        as it would be with a worker that died.
        """
        while self._bells and not until():
            step, subject = self._bells.popleft()
            table[step](subject)
