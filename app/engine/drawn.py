"""Drawn: the parents of children that are being made, which the ledger does not name yet."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.domain.program import ProgramId


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
