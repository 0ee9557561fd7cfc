"""Tree edits of data: the texts and lists that a program returns or assigns."""

import ast
import copy
import string
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from app.domain.operators.tree_edits import Change, EditTarget, replaced, shown
from app.domain.source.sites import Site, SourceTree
from app.domain.source.syntax import statements

_LISTS = ast.List | ast.Tuple | ast.Set
_LETTERS = string.ascii_letters + string.digits + " .,|^$*+?()[]-_"


def edit_text(target: EditTarget, rng: Random) -> Change | None:
    """Inserts, removes, replaces, exchanges or copies characters of a text."""
    places = texts(target.source)
    if not places:
        return None
    site = rng.choice(places)
    before = _text(site.node)
    first, last = sorted(rng.randrange(len(before) + 1) for _ in range(2))
    other = _text(rng.choice(places).node)
    letter = rng.choice([*other] if other and rng.random() < 0.5 else _LETTERS)
    match rng.randrange(5):
        case 0:
            after = before[:first] + letter + before[first:]
        case 1:
            after = before[:first] + before[max(last, first + 1) :]
        case 2:
            after = before[:first] + letter + before[first + 1 :]
        case 3:
            after = before[:first] + before[first + 1 : first + 2] + before[first : first + 1]
            after += before[first + 2 :]
        case _:
            part = sorted(rng.randrange(len(other) + 1) for _ in range(2))
            after = before[:first] + other[slice(*part)] + before[first:]
    new = ast.Constant(after)
    return replaced(target, [(site, new)], f"{shown(site.node)} becomes {shown(new)}")


def edit_list(target: EditTarget, rng: Random) -> Change | None:
    """Removes, exchanges, copies or replaces elements of a list of texts or lists."""
    places = lists(target.source)
    if not places:
        return None
    site = rng.choice(places)
    elements = list(_elements(site.node))
    n, other = rng.randrange(len(elements)), rng.randrange(len(elements))
    match rng.randrange(4):
        case 0 if len(elements) > 1:
            what = f"loses {shown(elements.pop(n))}"
        case 1 if n != other:
            elements[n], elements[other] = elements[other], elements[n]
            what = f"has {shown(elements[n])} and {shown(elements[other])} exchanged"
        case 2:
            elements.insert(n, elements[other])
            what = f"gains {shown(elements[n])}"
        case _:
            elements[n] = elements[other]
            what = f"gains {shown(elements[n])} in place of another"
    new = copy.copy(site.node)
    assert isinstance(new, ast.List | ast.Tuple | ast.Set)
    new.elts = elements
    return replaced(target, [(site, new)], f"a list {what}")


def texts(source: SourceTree) -> list[Site]:
    """Returns the texts that a program returns or assigns, by themselves or in lists."""
    return [site for site in _values(source) if isinstance(site.node, ast.Constant)]


def lists(source: SourceTree) -> list[Site]:
    """Returns the lists that a program returns or assigns whose elements are texts or lists."""
    return [
        site
        for site in _values(source)
        if (elements := _elements(site.node))
        and all(isinstance(part, _LISTS) or _is_text(part) for part in elements)
    ]


def share(source: SourceTree, places: Sequence[Site]) -> float:
    """Returns how much of what a program returns or assigns some expressions are: 0.0 to 1.0."""
    values = [statement.value for statement in _assigning(source) if statement.value is not None]
    return _covered(source, [site.node for site in places]) / max(1, _covered(source, values))


def _covered(source: SourceTree, nodes: Iterable[ast.expr]) -> int:
    """Returns how many bytes the expressions have together; what is inside another counts once."""
    held: set[int] = set()
    for node in nodes:
        held.update(range(*source.span(node)))
    return len(held)


def _assigning(source: SourceTree) -> Iterator[ast.Assign | ast.AnnAssign | ast.Return]:
    """Yields the statements of the regions that return or assign a value."""
    for statement in statements(source.tree):
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return) and source.within(
            statement
        ):
            yield statement


def _values(source: SourceTree) -> Iterator[Site]:
    for statement in _assigning(source):
        if statement.value is not None:
            yield from _parts_of_value(Site(statement.value, statement, frozenset()))


def _parts_of_value(site: Site) -> Iterator[Site]:
    """Yields a text or a list, and the texts and lists inside it; of a call, those it is given.

    A text that a call is given names something more often than it is the program's answer; only of
    the functions of `re` it is a pattern.
    """
    if _is_text(site.node) or isinstance(site.node, _LISTS):
        yield site
    match site.node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=parts):
            pass
        case ast.Call(args=arguments):
            parts = [part for part in arguments if isinstance(part, _LISTS)]
        case ast.Dict(values=parts):
            pass
        case _:
            parts = _elements(site.node)
    for part in parts:
        yield from _parts_of_value(site._replace(node=part))


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, str)
    return node.value
