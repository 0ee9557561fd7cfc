"""Tree edits of expressions: numbers, operators, grafts, new terms, and simplification."""

import ast
import copy
from collections.abc import Iterable, Set
from math import inf
from random import Random

from app.domain.finite import LARGEST
from app.domain.operators.tree_edits import Change, Donor, EditTarget, cut, replaced, shown
from app.domain.source.kinds.values import Kind, Value
from app.domain.source.sites import Site
from app.domain.source.syntax import literal, number

SAFE_BUILTINS = frozenset(
    ("abs", "min", "max", "sum", "len", "float", "int", "round", "sorted", "pow")
)
"""Builtins that a grafted expression may use."""
_DONOR_NODES = 40
"""Most nodes of a grafted expression; a larger one is hard to read."""
_OF_ITS_PLACE = frozenset({
    ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.NamedExpr,
    ast.Starred, ast.Await, ast.Yield, ast.YieldFrom,
})  # fmt: skip
"""Expressions that bind names, or that have a meaning only where they stand."""
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


def perturb_number(target: EditTarget, rng: Random) -> Change | None:
    """Moves a number by a Gaussian factor or, less often, by a Gaussian step; keeps its type."""
    # An integer beyond the largest float has no step of a share of its size.
    places = [
        (site, value)
        for site in target.sites
        if (value := number(site.node)) is not None
        and not site.structural
        and abs(value) <= LARGEST
    ]
    if not places:
        return None
    site, before = rng.choice(places)
    if isinstance(before, int):
        step = max(1, round(abs(rng.gauss(0.0, max(1.0, abs(before) * 0.3)))))
        after: int | float = before + rng.choice((-step, step))
    elif rng.random() < 0.7:
        after = _short(before * 2.0 ** rng.gauss(0.0, 0.7) * rng.choice((1, 1, 1, 1, 1, 1, 1, -1)))
    else:
        after = _short(before + rng.gauss(0.0, max(0.1, abs(before)) * 0.5))
    return replaced(target, [(site, literal(after))], f"{before} becomes {after}")


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
    return replaced(target, [(a, b.node), (b, a.node)], note)


def swap_operator(target: EditTarget, rng: Random) -> Change | None:
    """Replaces an operator by another of its kind, or a call by its counterpart."""
    pairs = [
        (site, new)
        for site in target.sites
        if not site.structural
        for new in _other_operators(target, site, rng)
    ]
    if not pairs:
        return None
    site, new = rng.choice(pairs)
    return replaced(target, [(site, new)], f"{shown(site.node)} becomes {shown(new)}")


def graft(target: EditTarget, rng: Random) -> Change | None:
    """Replaces an expression by another from an inspiration or from elsewhere in the program."""
    site = _draw_site(target, rng, any_kind=True)
    donor = None if site is None else _draw_donor(target, site, rng, alike=True)
    if site is None or donor is None:
        return None
    before, after = ast.unparse(site.node), ast.unparse(donor)
    if before == after:
        return None
    # A copy, because `ast.unparse` would give a node that occurs twice the same parentheses.
    return replaced(target, [(site, copy.copy(donor))], f"{cut(before)} becomes {cut(after)}")


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
    return replaced(target, [(site, _expression(text))], f"{cut(whole)} gains {scale} * {term}")


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
            graft = _draw_donor(target, site, rng, alike=True)
            other = f"({whole})" if graft is None else f"({ast.unparse(graft)})"
    if rng.random() < 0.5:
        test = f"({drawn}) {rng.choice('<>')} {_draw_scale(rng)}"
    else:
        # The test selects a band of values.
        test = f"abs(({drawn}) - {_draw_scale(rng)}) < {_draw_scale(rng)}"
    if target.kinds.value(site.node).kind is Kind.ARRAY:
        text = f"{target.numpy}.where({test}, {other}, {whole})"
    else:
        text = f"(({other}) if {test} else ({whole}))"
    return replaced(target, [(site, _expression(text))], f"{cut(whole)} splits where {test}")


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
    whole = ast.unparse(site.node)
    text = f"({whole}) + {term}"
    return replaced(target, [(site, _expression(text))], f"{cut(whole)} gains {term}")


def simplify(target: EditTarget, rng: Random) -> Change | None:
    """Replaces an expression by one of its parts, so that programs also get shorter."""
    pairs = [
        (site, part)
        for site in target.sites
        if not site.structural
        for part in _parts(site.node, target.numpy)
        if _replaces(target, part, site)
    ]
    if not pairs:
        return None
    site, part = rng.choice(pairs)
    return replaced(target, [(site, part)], f"{shown(site.node)} becomes {shown(part)}")


def move_position(target: EditTarget, rng: Random) -> Change | None:
    """Takes another element of a list or a text: the last, the middle one, or one further on."""
    places = [
        (site, node, index)
        for site in target.sites
        if isinstance(node := site.node, ast.Subscript)
        and isinstance(index := number(node.slice), int)
        and _holds_any(target.kinds.value(node.value))
    ]
    if not places:
        return None
    site, node, before = rng.choice(places)
    whole = ast.unparse(node.value)
    moved = rng.choice(
        (
            str(rng.choice((0, -1))),
            f"len({whole}) // 2",
            f"{before + rng.randint(1, 9)} % len({whole})",
        )
    )
    text = f"{whole}[{moved}]"
    if text == ast.unparse(node):
        return None
    return replaced(target, [(site, _expression(text))], f"{shown(node)} becomes {cut(text)}")


def _holds_any(value: Value) -> bool:
    """Returns whether a value has as many elements as there are, all of one kind."""
    return value.kind in (Kind.LIST, Kind.TEXT) or (
        value.kind is Kind.UNKNOWN and "." in value.symbol
    )


def _draw_site(target: EditTarget, rng: Random, *, any_kind: bool = False) -> Site | None:
    """Draws a place for arithmetic; every third time the whole value of a statement.

    With `any_kind`, a place for whatever is of its kind.
    """
    places = [
        site
        for site in target.sites
        if not site.structural
        and not site.exponent
        and (any_kind or (not site.whole and target.kinds.value(site.node).numeric))
    ]
    whole = [
        site
        for site in places
        if isinstance(site.anchor, (ast.Return, ast.Assign)) and site.anchor.value is site.node
    ]
    if whole and rng.random() < 0.33:
        places = whole
    return rng.choice(places) if places else None


def _draw_donor(
    target: EditTarget, site: Site, rng: Random, *, alike: bool = False
) -> ast.expr | None:
    """Draws an expression whose names are bound at a site and that can be calculated with there.

    With `alike`, one that may stand in the place of the site.
    """
    names, fits = site.names | SAFE_BUILTINS, _replaces if alike else _combines
    bound = [
        donor
        for donor in (*donors(target.sites), *target.foreign)
        if donor.names <= names
        and not (isinstance(donor.node, ast.Name) and donor.node.id in SAFE_BUILTINS)
    ]
    scope = target.kinds.scopes[site.node]
    while bound:
        donor = bound.pop(rng.randrange(len(bound)))
        if fits(target, donor.node, site) and not target.kinds.reaches(donor.names, scope):
            return donor.node
    return None


def _combines(target: EditTarget, donor: ast.expr, site: Site) -> bool:
    """Returns whether arithmetic on a site's value and a donor's has a value like the site's."""
    kinds = target.kinds
    value, other = kinds.value(site.node), kinds.value(donor, kinds.scopes[site.node])
    return other.scalar or (other.kind is Kind.ARRAY and kinds.same(value, other))


def _replaces(target: EditTarget, donor: ast.expr, site: Site) -> bool:
    """Returns whether a donor's value may stand in the place of a site's."""
    kinds = target.kinds
    value, other = kinds.value(site.node), kinds.value(donor, kinds.scopes[site.node])
    if value.scalar:
        return other.kind is Kind.INTEGER or (other.kind is Kind.REAL and not site.whole)
    return kinds.same(value, other)


def donors(places: Iterable[Site]) -> list[Donor]:
    """Returns the expressions that have the same meaning in another place, without the numbers."""
    known: dict[ast.AST, tuple[Set[str], float]] = {}
    found: list[Donor] = []
    for site in places:
        names, size = _reads(site.node, known)
        if size <= _DONOR_NODES and number(site.node) is None:
            found.append(Donor(site.node, names))
    return found


def _reads(node: ast.AST, known: dict[ast.AST, tuple[Set[str], float]]) -> tuple[Set[str], float]:
    """Returns the names in a node and its size, and keeps those of every node in it in `known`.

    The size is the number of nodes that `ast.walk` gives, and infinite where one of them belongs to
    its place or is no finite number.
    """
    if node in known:
        return known[node]
    names: set[str] = {node.id} if isinstance(node, ast.Name) else set()
    size: float = inf if type(node) in _OF_ITS_PLACE or _infinite(node) else 1
    values = vars(node)
    for field in node._fields:
        value = values[field]
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, ast.AST):
                inner, more = _reads(part, known)
                names |= inner
                size += more
    known[node] = names, size
    return names, size


def _infinite(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("inf", "nan")


def _draw_scale(rng: Random) -> float:
    """Draws a positive number, even over three decades: a tenth to a hundred."""
    return _short(10.0 ** rng.uniform(-1.0, 2.0))


def _short(value: float) -> float:
    """Returns a number rounded to four significant digits."""
    return float(f"{value:.4g}")


def _expression(text: str) -> ast.expr:
    """Returns the expression of a text."""
    return ast.parse(text, mode="eval").body


def _other_operators(target: EditTarget, site: Site, rng: Random) -> list[ast.expr]:
    """Returns at most one replacement, so that long expressions are not drawn more often."""
    match site.node:
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            sides = [target.kinds.value(side) for side in (left, right)]
            if not all(side.numeric for side in sides):
                return []
            # A whole number is often 0, and the quotient of two is none.
            divides = sides[1].kind is not Kind.INTEGER and not site.whole
            others = [
                kind
                for kind in _ARITHMETIC
                if not isinstance(op, kind) and (divides or kind is not ast.Div)
            ]
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
