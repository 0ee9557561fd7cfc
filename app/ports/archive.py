"""Islands and their cells."""

from collections.abc import Callable, Collection
from typing import Protocol

from app.domain.program import ProgramId
from app.domain.search.archive import Cell, CellKey, Elite, IslandView


class Archive(Protocol):
    """Islands and their cells."""

    def islands(self, run: int, *, lock: bool = False) -> tuple[IslandView, ...]:
        """Returns a run's islands in index order; with `lock` it locks them all, in that order."""
        ...

    def island(
        self,
        run: int,
        index: int,
        *,
        lock: bool = False,
        making: Callable[[ProgramId], int] = lambda _: 0,
    ) -> IslandView:
        """Returns an island of a run.

        Args:
          run: The run.
          index: The island's.
          lock: Whether to lock it.
          making: Returns how many children of a program the ledger does not name yet.
        """
        ...

    def cells(self, run: int, island: int, keys: Collection[CellKey]) -> dict[CellKey, Cell]:
        """Returns cells of an island, in one read; those without an occupant are empty."""
        ...

    def put_cell(
        self, run: int, island: int, cell: Cell, *, seen: IslandView | None = None
    ) -> bool:
        """Makes these the cell's occupants, and counts one admission on the island.

        Args:
          run: The run.
          island: The island's index.
          cell: The cell and its new occupants.
          seen: The island as it was read; nothing is done, and False returned, if any program has
            entered it since.  None where this transaction has locked it.
        """
        ...

    def clear_island(self, run: int, island: int, *, reset: bool) -> None:
        """Empties an island's cells; with `reset` it also enters its next epoch."""
        ...

    def champion(self, run: int) -> Elite | None:
        """Returns the best of the elites that lead their cells, on any island; None if none."""
        ...

    def elites(self, run: int) -> list[tuple[int, Elite]]:
        """Returns every (island, elite), by island, then cell, then rank."""
        ...
