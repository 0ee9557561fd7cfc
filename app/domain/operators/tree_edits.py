"""Tree edits: random changes of a Python program's expressions and statements.

Each edit draws its place among those the program offers, and returns the changed text with a note
of the change, or None where the program offers no place.
"""

import ast
import copy
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import TypeAlias

from app.domain.source.sites import Site, SourceTree
from app.domain.source.syntax import free_names, literal, number

SAFE_BUILTINS = frozenset(
    ("abs", "min", "max", "sum", "len", "float", "int", "round", "sorted", "pow")
)
"""Builtins that a grafted expression may use."""
_DONOR_NODES = 40  # larger expressions are hard to read after a graft
_ARITHMETIC: tuple[type[ast.operator], ...] = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_ORDERINGS: tuple[type[ast.cmpop], ...] = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_TWINS = (
    ("minimum", "maximum"),
    ("min", "max"),
    ("argmin", "argmax"),
    ("sqrt", "log1p"),
    ("floor", "ceil"),
    ("sin", "cos"),
    ("any", "all"),
)
"""Calls with the same kinds of arguments and results."""
_LISTS = ast.List | ast.Tuple | ast.Set
_LETTERS = string.ascii_letters + string.digits + " .,|^$*+?()[]-_"
_MOVABLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.If | ast.For | ast.While


@dataclass(frozen=True, slots=True)
class EditTarget:
    """A program for one edit.

    Attributes:
      donors: Expressions that may be grafted, from the program and its inspirations.
      numpy: The name under which numpy is imported; "" where it is not.
    """

    source: SourceTree
    sites: Sequence[Site]
    donors: Sequence[ast.expr]
    numpy: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """An edited program text, and the edit in prose."""

    text: str
    note: str


TreeEdit: TypeAlias = Callable[[EditTarget, Random], Change | None]
"""Returns a change, or None where the program offers no place for it."""


def perturb_number(target: EditTarget, rng: Random) -> Change | None:
    """Moves a number by a Gaussian factor or, less often, by a Gaussian step; keeps its type."""
    places = [
        site for site in target.sites if number(site.node) is not None and not site.structural
    ]
    if not places:
        return None
    site = rng.choice(places)
    before = number(site.node) or 0
    if isinstance(before, int):
        step = max(1, round(abs(rng.gauss(0.0, max(1.0, abs(before) * 0.3)))))
        after: int | float = before + rng.choice((-step, step))
    elif rng.random() < 0.7:
        after = _short(before * 2.0 ** rng.gauss(0.0, 0.7) * rng.choice((1, 1, 1, 1, 1, 1, 1, -1)))
    else:
        after = _short(before + rng.gauss(0.0, max(0.1, abs(before)) * 0.5))
    return _replaced(target, [(site, literal(after))], f"{before} becomes {after}")


def swap_numbers(target: EditTarget, rng: Random) -> Change | None:
    """Exchanges two different numbers of the same type."""
    places = [
        (site, value)
        for site in target.sites
        if (value := number(site.node)) is not None and not site.structural
    ]
    pairs = [
        (a, b)
        for n, (a, x) in enumerate(places)
        for b, y in places[n + 1 :]
        if x != y and type(x) is type(y)
    ]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    note = f"{ast.unparse(a.node)} and {ast.unparse(b.node)} change places"
    return _replaced(target, [(a, copy.copy(b.node)), (b, copy.copy(a.node))], note)


def swap_operator(target: EditTarget, rng: Random) -> Change | None:
    """Replaces an operator by another of its kind, or a call by its counterpart."""
    pairs = [(site, new) for site in target.sites for new in _other_operators(site, rng)]
    if not pairs:
        return None
    site, new = rng.choice(pairs)
    return _replaced(target, [(site, new)], f"{_shown(site.node)} becomes {_shown(new)}")


def graft(target: EditTarget, rng: Random) -> Change | None:
    """Replaces an expression by another from an inspiration or from elsewhere in the program."""
    site = _draw_site(target, rng, truths=True)
    if site is None:
        return None
    donor = _draw_donor(target, site, rng, truth=site.truth)
    if donor is None or ast.dump(donor) == ast.dump(site.node):
        return None
    return _replaced(target, [(site, donor)], f"{_shown(site.node)} becomes {_shown(donor)}")


def add_term(target: EditTarget, rng: Random) -> Change | None:
    """Adds a scaled safe function of another expression to an expression, or multiplies by it."""
    site = _draw_site(target, rng)
    donor = None if site is None else _draw_donor(target, site, rng)
    if site is None or donor is None:
        return None
    term = _through_safe_function(target, ast.unparse(donor), rng)
    whole, scale = ast.unparse(site.node), _draw_scale(rng)
    if rng.random() < 0.75:
        text = f"({whole}) {rng.choice('+-')} {scale} * {term}"
    else:
        text = f"({whole}) * (1.0 {rng.choice('+-')} {scale} * {term})"
    return _replaced(
        target, [(site, _expression(text))], f"{_shown(site.node)} gains {scale} * {term}"
    )


def add_threshold(target: EditTarget, rng: Random) -> Change | None:
    """Gives an expression another value on one side of a threshold or in a band."""
    site = _draw_site(target, rng)
    donor = None if site is None else _draw_donor(target, site, rng)
    if site is None or donor is None:
        return None
    whole = ast.unparse(site.node)
    drawn = ast.unparse(donor)
    match rng.randrange(4):
        case 0:
            other = f"{_draw_scale(rng)} * ({whole})"
        case 1:
            other = f"({whole}) {rng.choice('+-')} {_draw_scale(rng)}"
        case 2:
            other = str(_draw_scale(rng) * rng.choice((-1, 1)))
        case _:
            graft = _draw_donor(target, site, rng)
            other = f"({whole})" if graft is None else f"({ast.unparse(graft)})"
    if rng.random() < 0.5:
        test = f"({drawn}) {rng.choice('<>')} {_draw_scale(rng)}"
    else:
        test = f"abs(({drawn}) - {_draw_scale(rng)}) < {_draw_scale(rng)}"  # a band
    if target.numpy:
        text = f"{target.numpy}.where({test}, {other}, {whole})"
    else:
        text = f"(({other}) if {test} else ({whole}))"
    return _replaced(
        target, [(site, _expression(text))], f"{_shown(site.node)} splits where {test}"
    )


def add_profile(target: EditTarget, rng: Random) -> Change | None:
    """Adds a random piecewise-linear function of another expression.

    Where two thresholds would help, one alone rarely does; a profile has several, and its numbers
    can be moved one by one by `tune`.  Needs numpy.
    """
    site = _draw_site(target, rng) if target.numpy else None
    donor = None if site is None else _draw_donor(target, site, rng)
    if site is None or donor is None:
        return None
    top, scale = _draw_scale(rng) * 2.0, _draw_scale(rng)
    knots = [_short(top * share) for share in (0.0, 0.03, 0.1, 0.2, 0.4, 1.0)]
    heights = [_short(rng.gauss(0.0, scale)) for _ in knots]
    term = f"{target.numpy}.interp({ast.unparse(donor)}, {knots}, {heights})"
    text = f"({ast.unparse(site.node)}) + {term}"
    return _replaced(target, [(site, _expression(text))], f"{_shown(site.node)} gains {term}")


def simplify(target: EditTarget, rng: Random) -> Change | None:
    """Replaces an expression by one of its parts, so that programs also get shorter."""
    pairs = [
        (site, part)
        for site in target.sites
        if not site.structural
        for part in _parts(site.node, target.numpy)
    ]
    if not pairs:
        return None
    site, part = rng.choice(pairs)
    return _replaced(target, [(site, part)], f"{_shown(site.node)} becomes {_shown(part)}")


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
    return _replaced(target, [(site, new)], f"{_shown(site.node)} becomes {_shown(new)}")


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
            what = f"loses {_shown(elements.pop(n))}"
        case 1 if n != other:
            elements[n], elements[other] = elements[other], elements[n]
            what = f"has {_shown(elements[n])} and {_shown(elements[other])} exchanged"
        case 2:
            elements.insert(n, copy.deepcopy(elements[other]))
            what = f"gains {_shown(elements[n])}"
        case _:
            elements[n] = copy.deepcopy(elements[other])
            what = f"gains {_shown(elements[n])} in place of another"
    new = copy.copy(site.node)
    assert isinstance(new, ast.List | ast.Tuple | ast.Set)
    new.elts = elements
    return _replaced(target, [(site, new)], f"a list {what}")


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
    for statement in ast.walk(source.tree):
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
        yield from _parts_of_value(replace(site, node=part))


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, str)
    return node.value


def delete(target: EditTarget, rng: Random) -> Change | None:
    """Removes a statement; a body keeps at least one."""
    source = target.source
    places = [
        statement
        for body in _bodies(source.tree)
        if len(body) > 1
        for statement in body
        if _whole_lines(source, statement)
    ]
    if not places:
        return None
    chosen = rng.choice(places)
    first, end = _line_span(source, chosen)
    text = source.encoded[:first] + source.encoded[end:]
    return Change(text.decode(), f"line {chosen.lineno}: deleted")


def duplicate(target: EditTarget, rng: Random) -> Change | None:
    """Writes a statement twice."""
    source = target.source
    places = [
        statement
        for body in _bodies(source.tree)
        for statement in body
        if _whole_lines(source, statement)
    ]
    if not places:
        return None
    chosen = rng.choice(places)
    first, end = _line_span(source, chosen)
    text = source.encoded[:end] + source.encoded[first:end] + source.encoded[end:]
    return Change(text.decode(), f"line {chosen.lineno}: duplicated")


def reorder(target: EditTarget, rng: Random) -> Change | None:
    """Exchanges two neighbouring statements."""
    source = target.source
    pairs = [
        (a, b)
        for body in _bodies(source.tree)
        for a, b in pairwise(body)
        if _whole_lines(source, a) and _whole_lines(source, b)
    ]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    (first, a_end), (b_first, end) = _line_span(source, a), _line_span(source, b)
    text = source.encoded
    text = text[:first] + text[b_first:end] + text[a_end:b_first] + text[first:a_end] + text[end:]
    return Change(text.decode(), f"lines {a.lineno} and {b.lineno} change places")


def swap_augmented(target: EditTarget, rng: Random) -> Change | None:
    """Replaces the operator of an augmented assignment."""
    source = target.source
    places = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
        and source.within(node)
    ]
    if not places:
        return None
    chosen = rng.choice(places)
    kinds = [kind for kind in (ast.Add, ast.Sub, ast.Mult) if not isinstance(chosen.op, kind)]
    first, end = source.span(chosen)
    chosen.op = rng.choice(kinds)()
    text = source.encoded[:first] + ast.unparse(chosen).encode() + source.encoded[end:]
    return Change(text.decode(), f"line {chosen.lineno}: becomes {ast.unparse(chosen)[:60]}")


def _replaced(target: EditTarget, pairs: Sequence[tuple[Site, ast.expr]], note: str) -> Change:
    """Returns the change that replaces the expression of each site."""
    line = pairs[0][0].node.lineno
    return Change(target.source.replaced(pairs), f"line {line}: {note}")


def _draw_site(target: EditTarget, rng: Random, *, truths: bool = False) -> Site | None:
    """Draws a place for arithmetic; every third time the whole value of a statement."""
    places = [
        site
        for site in target.sites
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


def _draw_donor(
    target: EditTarget, site: Site, rng: Random, *, truth: bool = False
) -> ast.expr | None:
    """Draws an expression whose names are bound at a site."""
    names = site.names | SAFE_BUILTINS
    fitting = [
        donor
        for donor in target.donors
        if _is_truth(donor) is truth
        and free_names(donor) <= names
        and (truth or number(donor) is None)
        and not (isinstance(donor, ast.Name) and donor.id in SAFE_BUILTINS)
        and graftable(donor)
    ]
    return (
        copy.deepcopy(rng.choice(fitting)) if fitting else None
    )  # the donor may contain the site itself


def graftable(node: ast.expr) -> bool:
    """Returns whether an expression has the same meaning in another place."""
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


def _is_truth(node: ast.expr) -> bool:
    """Returns whether the form of an expression shows that its value is a truth value."""
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _draw_scale(rng: Random) -> float:
    """Draws a positive number, even over three decades: a tenth to a hundred."""
    return _short(10.0 ** rng.uniform(-1.0, 2.0))


def _short(value: float) -> float:
    """Returns a number rounded to four significant digits."""
    return float(f"{value:.4g}")


def _expression(text: str) -> ast.expr:
    """Returns the expression of a text."""
    return ast.parse(text, mode="eval").body


def _shown(node: ast.expr) -> str:
    """Returns an expression's text, cut for a note."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


def _other_operators(site: Site, rng: Random) -> list[ast.expr]:
    """Returns at most one replacement, so that long expressions are not drawn more often."""
    match site.node:
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            others = [kind for kind in _ARITHMETIC if not isinstance(op, kind)]
            return [ast.BinOp(left, rng.choice(others)(), right)]
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return [ast.BinOp(left, ast.Mod(), right)]
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return [ast.BinOp(left, ast.FloorDiv(), right)]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _ORDERINGS):
            others_ = [kind for kind in _ORDERINGS if not isinstance(op, kind)]
            return [ast.Compare(left, [rng.choice(others_)()], [right])]
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return [ast.Compare(left, [ast.NotEq()], [right])]
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            return [ast.Compare(left, [ast.Eq()], [right])]
        case ast.BoolOp(op=ast.And(), values=values):
            return [ast.BoolOp(ast.Or(), values)]
        case ast.BoolOp(op=ast.Or(), values=values):
            return [ast.BoolOp(ast.And(), values)]
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand) as node:
            return [] if number(node) is not None else [operand]
        case ast.Call():
            return _twin(site.node)
    return []


def _twin(node: ast.Call) -> list[ast.expr]:
    for before, after in (*_TWINS, *((b, a) for a, b in _TWINS)):
        match node.func:
            case ast.Attribute(value=value, attr=name) if name == before:
                function: ast.expr = ast.Attribute(value, after, ast.Load())
                return [ast.Call(function, node.args, node.keywords)]
            case ast.Name(id=name) if name == before and {before, after} <= SAFE_BUILTINS:
                return [ast.Call(ast.Name(after, ast.Load()), node.args, node.keywords)]
    return []


def _parts(node: ast.expr, numpy: str) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            return [part for part in (left, right) if number(part) is None]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=module), attr="where"), args=[_, body, orelse]
        ) if module == numpy:
            return [part for part in (body, orelse) if number(part) is None]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module)), args=[argument]) if (
            module == numpy
        ):
            return [argument]
    return []


def _through_safe_function(target: EditTarget, inner: str, rng: Random) -> str:
    """Returns a call that is finite for every finite argument, except for overflow."""
    if target.numpy:
        np = target.numpy
        forms = [
            "({x})",
            np + ".abs({x})",
            np + ".sqrt(" + np + ".abs({x}))",
            np + ".log1p(" + np + ".abs({x}))",
            np + ".square({x})",
            np + ".exp(-" + np + ".abs({x}))",
        ]
    else:
        forms = ["({x})", "abs({x})", "abs({x}) ** 0.5", "({x}) ** 2", "(1.0 / (1.0 + abs({x})))"]
    return rng.choice(forms).replace("{x}", inner)


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    """Returns every list of statements inside functions, in the order of `ast.walk`."""
    bodies: list[list[ast.stmt]] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            _collect(function.body, bodies)
    return bodies


def _collect(body: Sequence[ast.stmt], bodies: list[list[ast.stmt]]) -> None:
    bodies.append(list(body))
    for statement in body:
        match statement:
            case ast.If(body=inner, orelse=other) | ast.For(body=inner, orelse=other):
                _collect(inner, bodies)
                if other:
                    _collect(other, bodies)
            case ast.While(body=inner) | ast.With(body=inner) | ast.Try(body=inner):
                _collect(inner, bodies)


def _whole_lines(source: SourceTree, statement: ast.stmt) -> bool:
    """Returns whether a statement may be moved: a movable kind, alone on lines that may change."""
    if not isinstance(statement, _MOVABLE) or not source.within(statement):
        return False
    match statement:
        case ast.Expr(value=ast.Constant()):
            return False  # a docstring
    first, end = _line_span(source, statement)
    start, stop = source.span(statement)
    before, after = source.encoded[first:start], source.encoded[stop:end].strip()
    return (
        not before.strip()
        and (not after or after.startswith(b"#"))
        and (source.encoded[end - 1 : end] in (b"\n", b"\r"))
    )


def _line_span(source: SourceTree, statement: ast.stmt) -> tuple[int, int]:
    last = statement.end_lineno or statement.lineno
    return source.starts[statement.lineno - 1], source.starts[last]
