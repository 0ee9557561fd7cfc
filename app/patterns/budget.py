"""How many candidates patterns may run, also those inside candidates."""

import mmap
import struct
from contextvars import ContextVar

from app.patterns.errors import LimitError

_COUNT = struct.Struct("=q")


class CandidateBudget:
    """A number of candidates, which processes share that were forked after it was made."""

    def __init__(self, candidates: int) -> None:
        """Sets the number.

        Raises:
          ValueError: It is negative.
        """
        if candidates < 0:
            raise ValueError(f"a budget of {candidates} candidates; it must not be negative")
        self._left = mmap.mmap(-1, _COUNT.size)
        self._write(candidates)

    @property
    def left(self) -> int:
        """How many candidates may still be started."""
        return int(_COUNT.unpack_from(self._left)[0])

    def reserve(self, candidates: int) -> "CandidateBudget":
        """Takes candidates out and returns them as a budget of their own.

        Raises:
          LimitError: There are not so many left.
        """
        if candidates > self.left:
            raise LimitError(
                f"a candidate needs {candidates} of the budget, and {self.left} are left"
            )
        self._write(self.left - candidates)
        return CandidateBudget(candidates)

    def give_back(self, part: "CandidateBudget") -> None:
        """Puts back what is left of a reserved part, which is empty then."""
        self._write(self.left + part.left)
        part._write(0)

    def _write(self, candidates: int) -> None:
        _COUNT.pack_into(self._left, 0, candidates)


INHERITED: ContextVar[CandidateBudget | None] = ContextVar("inherited budget", default=None)
"""In a candidate's process: what was reserved for the patterns inside it."""
