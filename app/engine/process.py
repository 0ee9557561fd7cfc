"""Process: what the steps of one process do together, and what they wait for."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, Protocol, TypeAlias, TypeVar

from app.domain.program import ProgramId
from app.domain.run import Run
from app.ports.protocols import NEVER, Stop

LeaseKind: TypeAlias = Literal["proposal", "trial"]
Subject = TypeVar("Subject")
Result = TypeVar("Result")


def nothing(results: Sequence[object]) -> None:
    """Does nothing with the results of a transaction."""


class Process(Protocol):
    """The process that runs steps: its threads, its leases and its places at models.

    The methods have the bodies of a process with one thread beside which no worker works.
    """

    def keep_lease(self, kind: LeaseKind, subject: int) -> AbstractContextManager[Stop]:  # noqa: ARG002
        """Renews a lease while the context manager is open.

        Yields the stop of the step, which is asked for once the subject was withdrawn.
        """
        return nullcontext(NEVER)

    def count_work(self, run: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Counts a step for a run while the context manager is open."""
        return nullcontext()

    def take_place(self, run: Run) -> AbstractContextManager[Callable[[], None]]:  # noqa: ARG002
        """Waits until the model of a run takes one more conversation.

        Yields the function that gives the place back before the context manager ends.
        """
        return nullcontext(lambda: None)

    def wait(self, seconds: float) -> None:  # noqa: ARG002
        """Waits for so many seconds."""
        return

    def show_moves(self, trial: int, moves: Sequence[str]) -> None:  # noqa: ARG002
        """Shows people the moves so far of the game that a trial is."""
        return

    def share(
        self,
        kind: Hashable,  # noqa: ARG002
        subjects: Sequence[Subject],
        work: Callable[[Sequence[Subject]], Sequence[Result]],
        after: Callable[[Sequence[Result]], None] = nothing,
        /,
    ) -> list[Result]:
        """Runs `work` for these subjects, and maybe for more that other threads bring.

        Args:
          kind: What is done; all calls of a kind have the same `work` and `after`.
          subjects: What it is done for.
          work: Does it for any number of subjects, all or nothing, and returns a result for each,
            in order; run by one of the threads.
          after: Called with the results of all subjects of a transaction that has committed, by the
            thread that ran it, while the others go on.

        Returns:
          The results of these subjects, in order.

        Raises:
          BaseException: What `work` raised for these subjects.  A subject that fails does not fail
            the subjects of other threads.
        """
        results = list(work(subjects))
        after(results)
        return results


class Alone(Process):
    """A process with one thread beside which no worker works; it never waits."""


ALONE = Alone()


class Drawn:
    """Counts the children that are being made in this process, by run and first parent.

    The ledger names the parents of a proposal when its model has answered.  Without this count a
    program would have as many children beyond its patience as requests are in flight.

    Threads share it without a lock: each entry has a key of its own, and a single operation on a
    dictionary is atomic.
    """

    def __init__(self) -> None:
        self._parents: dict[object, tuple[int, ProgramId]] = {}

    def children(self, run: int, parent: ProgramId) -> int:
        """Returns how many children of a program are being made.

        A child whose reply is being repaired is counted although the ledger has it already.
        """
        return list(self._parents.values()).count((run, parent))

    @contextmanager
    def counting(self, run: int) -> Iterator[Callable[[ProgramId], None]]:
        """Yields what counts a child of a parent, for as long as the context manager is open."""
        mine: list[object] = []

        def count(parent: ProgramId) -> None:
            mine.append(object())
            self._parents[mine[-1]] = (run, parent)

        try:
            yield count
        finally:
            for child in mine:
                del self._parents[child]
