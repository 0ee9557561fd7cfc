"""Decoration: pictures, tables and parts of pages, whose faults never end or hide a result."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from app.ports.protocols import Unavailable

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NotMade:
    """Something that decorates a result and could not be made.

    Attributes:
      name: A file, or a part of a page.
      why: The error, with its kind.
    """

    name: str
    why: str

    @property
    def text(self) -> str:
        return f"{self.name} could not be made: {self.why}"


def attempt(name: str, make: Callable[[], _T]) -> _T | NotMade:
    """Returns what `make` returns, or why it could not.

    Raises:
      Unavailable: The ledger does not answer: what is missing then is a result.
    """
    try:
        return make()
    except Unavailable:
        raise
    # Of any kind: libraries draw, and what is drawn comes from programs.
    except Exception as error:
        return NotMade(name, f"{type(error).__name__}: {error}".strip().removesuffix(":"))
