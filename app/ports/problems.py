"""Problems, by digest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from app.domain.problem import Problem, ProblemDigest


@dataclass(frozen=True, slots=True)
class StoredProblem:
    """What the ledger keeps of a problem, enough to load it again.

    Attributes:
      format: The name of the format that reads it.
      files: Relative POSIX path to contents.
      options: Values beside the files that shape its evaluation.
    """

    format: str
    name: str
    files: Mapping[str, bytes]
    options: Mapping[str, Any]


class Problems(Protocol):
    """Problems, by digest."""

    def add(self, problem: Problem) -> None:
        """Stores a problem's files once; the same digest again is not an error."""
        ...

    def get(self, digest: ProblemDigest) -> StoredProblem:
        """Returns what is stored of a problem.

        Raises:
          LookupError: No such problem.
        """
        ...
