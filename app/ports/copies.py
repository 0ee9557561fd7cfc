"""Copies of runs, which travel from one ledger to another."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class BadCopy(ValueError):
    """A copy of a run is damaged, or of another version of the ledger."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table of the ledger.

    Attributes:
      values: JSON values by column, every column.
    """

    table: str
    values: Mapping[str, Any]


class Copies(Protocol):
    """Copies of runs, which travel from one ledger to another."""

    def rows(self, run: int) -> Iterator[Row]:
        """Yields every row of a run, those of its problem and programs too, in a fixed order.

        They have to be read before the transaction ends.
        """
        ...

    def add(self, rows: Iterable[Row], name: str) -> int:
        """Adds a run from its rows, and returns its number.

        A run that was going on is paused.  Programs and problems that are there already stay.

        Args:
          rows: As `rows` yields them.
          name: The run's name in this ledger.

        Raises:
          BadCopy: They are not the rows of a run, or of another version of the ledger.
          ValueError: The name is taken.
        """
        ...
