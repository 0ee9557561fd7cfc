"""Workpieces: a program about to be edited once, and what edits draw from it."""

import ast
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from app.domain.operators.edit_sites import Site, Source, free_names, number

SAFE_BUILTINS = frozenset(
    ("abs", "min", "max", "sum", "len", "float", "int", "round", "sorted", "pow")
)
"""Builtins that a graft may bring with it."""
_DONOR_NODES = 40  # what is grafted stays small enough to be read


@dataclass(frozen=True, slots=True)
class EditTarget:
    """A program about to be edited once.

    Attributes:
      donors: Expressions that may be grafted, from inspirations and the program itself.
      numpy: The name numpy is imported under; "" where it is not.
    """

    source: Source
    sites: Sequence[Site]
    donors: Sequence[ast.expr]
    numpy: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """An edited program text, and the edit in prose."""

    text: str
    note: str


Edit: TypeAlias = Callable[[EditTarget, Random], Change | None]
"""Returns a changed text, or None where the program offers no place for it."""


def done(piece: EditTarget, pairs: Sequence[tuple[Site, ast.expr]], note: str) -> Change:
    """Returns the change that replaces each site's expression."""
    line = pairs[0][0].node.lineno
    return Change(piece.source.replaced(pairs), f"line {line}: {note}")


def draw_site(piece: EditTarget, rng: Random, *, truths: bool = False) -> Site | None:
    """Draws a place for arithmetic; every third time the whole of a statement's value."""
    places = [
        site
        for site in piece.sites
        if not site.structural and not site.exponent and (truths or not site.truth)
    ]
    whole = [
        site
        for site in places
        if isinstance(site.anchor, ast.Return | ast.Assign) and site.anchor.value is site.node
    ]
    if whole and rng.random() < 0.33:
        places = whole
    return rng.choice(places) if places else None


def draw_donor(
    piece: EditTarget, site: Site, rng: Random, *, truth: bool = False
) -> ast.expr | None:
    """Draws an expression that could stand at a site: its names are bound there."""
    names = site.names | SAFE_BUILTINS
    fitting = [
        donor
        for donor in piece.donors
        if is_truth(donor) is truth
        and free_names(donor) <= names
        and (truth or number(donor) is None)
        and not (isinstance(donor, ast.Name) and donor.id in SAFE_BUILTINS)
        and graftable(donor)
    ]
    return copy.deepcopy(rng.choice(fitting)) if fitting else None  # it may hold the site itself


def graftable(node: ast.expr) -> bool:
    """Says whether an expression means the same where it is grafted as where it stood."""
    return sum(1 for _ in ast.walk(node)) <= _DONOR_NODES and not any(
        isinstance(
            part,
            ast.Lambda
            | ast.ListComp
            | ast.GeneratorExp
            | ast.SetComp
            | ast.DictComp
            | ast.NamedExpr
            | ast.Starred
            | ast.Await
            | ast.Yield
            | ast.YieldFrom,
        )
        for part in ast.walk(node)
    )


def is_truth(node: ast.expr) -> bool:
    """Says whether an expression's value is a truth value by its form."""
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def draw_scale(rng: Random) -> float:
    """Draws a positive number, even over three decades: a tenth to a hundred."""
    return short(10.0 ** rng.uniform(-1.0, 2.0))


def short(value: float) -> float:
    """Returns a number with four digits, as a person would write it."""
    return float(f"{value:.4g}")


def read(text: str) -> ast.expr:
    """Returns the expression that a text spells."""
    return ast.parse(text, mode="eval").body


def shown(node: ast.expr) -> str:
    """Returns an expression's text, cut for a note."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."
