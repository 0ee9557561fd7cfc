"""What a tree edit is: a random change of a Python program's expressions or statements.

Each edit draws its place among those the program offers, and returns the changed text with a note
of the change, or None where the program offers no place.
"""

import ast
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypeAlias

from app.domain.source.kinds.program import Kinds
from app.domain.source.sites import Site, SourceTree, kinds


class Donor(NamedTuple):
    """An expression that may be grafted.

    Attributes:
      names: Names that it reads.
    """

    node: ast.expr
    names: Set[str]


@dataclass(frozen=True, slots=True)
class EditTarget:
    """A program for one edit.

    Attributes:
      foreign: Expressions of its inspirations, which may be grafted as its own may.
    """

    source: SourceTree
    sites: Sequence[Site]
    foreign: Sequence[Donor]

    @property
    def kinds(self) -> Kinds:
        """What the program's values are."""
        return kinds(self.source)

    @property
    def numpy(self) -> str:
        """The name under which numpy is imported; "" where it is not."""
        return self.kinds.numpy


@dataclass(frozen=True, slots=True)
class Change:
    """An edited program text, and the edit in prose.

    Attributes:
      line: The first line that it changes, counted from 1 in the text before.
    """

    text: str
    note: str
    line: int


TreeEdit: TypeAlias = Callable[[EditTarget, Random], Change | None]
"""Returns a change, or None where the program offers no place for it."""


def replaced(target: EditTarget, pairs: Sequence[tuple[Site, ast.expr]], note: str) -> Change:
    """Returns the change that replaces the expression of each site."""
    line = pairs[0][0].node.lineno
    return Change(target.source.replaced(pairs), f"line {line}: {note}", line)


def spliced(source: SourceTree, span: tuple[int, int], new: bytes, note: str, line: int) -> Change:
    """Returns the change of a program that puts other bytes in the place of a span."""
    first, end = span
    text = source.encoded[:first] + new + source.encoded[end:]
    return Change(text.decode(), f"line {line}: {note}", line)


def shown(node: ast.expr) -> str:
    """Returns an expression's text, cut for a note."""
    return cut(ast.unparse(node))


def cut(text: str) -> str:
    """Returns the text of an expression, cut for a note."""
    return text if len(text) <= 60 else text[:57] + "..."
