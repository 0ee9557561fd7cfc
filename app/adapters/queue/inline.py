"""A queue in this process: first in, first out, one step at a time."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from app.ports.protocols import Step


class InlineExecutor:
    """Keeps messages until `drain` runs their steps.

    With one process and one order, the same seed gives the same run.  Not for several threads.
    """

    def __init__(self) -> None:
        """Begins empty."""
        self._messages: deque[tuple[Step, int]] = deque()

    def submit(
        self,
        step: Step,
        subjects: Sequence[int],
        *,
        together: int = 1,  # noqa: ARG002
        fleet: str = "",  # noqa: ARG002
    ) -> None:
        """Appends a message for each subject, whatever `together` allows and whatever its fleet."""
        self._messages.extend((step, subject) for subject in subjects)

    def queued(self, step: Step, fleet: str = "") -> int:  # noqa: ARG002
        """Returns how many messages name the step, whatever their fleet."""
        return sum(name == step for name, _ in self._messages)

    @property
    def pending(self) -> bool:
        """Whether a message waits for its step."""
        return bool(self._messages)

    def drain(self, table: Mapping[Step, Callable[[int], None]], until: Callable[[], bool]) -> None:
        """Runs the steps of all messages, also new ones, until none is left or `until()` holds.

        `until` is called before each message.  An exception of a step propagates; its message is
        lost, as it is with a worker that dies.
        """
        while self._messages and not until():
            step, subject = self._messages.popleft()
            table[step](subject)
