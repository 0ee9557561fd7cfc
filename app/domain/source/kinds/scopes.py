"""Scopes of a program: the names that a function binds, their values, and where these come from."""

import ast
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain.source.kinds.values import Value

ELEMENT = "element"
APPENDED = "appended"
Path: TypeAlias = tuple[int | str, ...]
"""Which part of a value: `ELEMENT` for any element, an integer for a member of a tuple.

The first may be `APPENDED`: what follows is a part of one element among others.
"""


@dataclass(slots=True, eq=False)
class Scope:
    """A function, or the module, with the kinds of its names.

    Attributes:
      sources: Name to the expressions that are assigned to it, each with the part that is.
      results: The expressions that it returns.
      converted: Names whose kind changes from one line to the next.
    """

    name: str
    parent: "Scope | None" = None
    parameters: tuple[str, ...] = ()
    names: dict[str, Value] = field(default_factory=dict)
    sources: dict[str, dict[tuple[ast.expr, Path], "Scope"]] = field(default_factory=dict)
    results: dict[ast.expr, None] = field(default_factory=dict)
    result: Value | None = None
    calls: set[str] = field(default_factory=set)
    converted: set[str] = field(default_factory=set)

    @property
    def outermost(self) -> "Scope":
        """The function of the module that it is part of; what it calls counts as called by that."""
        scope = self
        while scope.parent is not None and scope.parent.parent is not None:
            scope = scope.parent
        return scope

    def holding(self, name: str) -> "Scope | None":
        """Returns the scope that binds a name; None for a builtin and an unknown name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope
