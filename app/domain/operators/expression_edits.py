"""Syntax-tree edits of expressions: numbers, operators, terms and thresholds."""

import ast
import copy
from random import Random

from app.domain.operators.edit_sites import Site, literal, number
from app.domain.operators.edit_target import (
    SAFE_BUILTINS,
    Change,
    EditTarget,
    done,
    draw_donor,
    draw_scale,
    draw_site,
    read,
    short,
    shown,
)

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
"""Calls that take and give the same kinds of values."""


def perturb_number(piece: EditTarget, rng: Random) -> Change | None:
    """Moves one number by a Gaussian factor or, less often, a Gaussian step; whole stays whole."""
    places = [site for site in piece.sites if _numeric(site) is not None and not site.structural]
    if not places:
        return None
    site = rng.choice(places)
    before = number(site.node) or 0
    if isinstance(before, int):
        step = max(1, round(abs(rng.gauss(0.0, max(1.0, abs(before) * 0.3)))))
        after: int | float = before + rng.choice((-step, step))
    elif rng.random() < 0.7:
        after = short(before * 2.0 ** rng.gauss(0.0, 0.7) * rng.choice((1, 1, 1, 1, 1, 1, 1, -1)))
    else:
        after = short(before + rng.gauss(0.0, max(0.1, abs(before)) * 0.5))
    return done(piece, [(site, literal(after))], f"{before} becomes {after}")


def swap_numbers(piece: EditTarget, rng: Random) -> Change | None:
    """Lets two different numbers of one type change places."""
    places = [site for site in piece.sites if _numeric(site) is not None and not site.structural]
    pairs = [
        (one, other)
        for index, one in enumerate(places)
        for other in places[index + 1 :]
        if _numeric(one) != _numeric(other) and type(_numeric(one)) is type(_numeric(other))
    ]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    note = f"{ast.unparse(one.node)} and {ast.unparse(other.node)} change places"
    return done(piece, [(one, copy.copy(other.node)), (other, copy.copy(one.node))], note)


def swap_operator(piece: EditTarget, rng: Random) -> Change | None:
    """Replaces one operator, or one call by its twin, by another of its kind."""
    pairs = [(site, new) for site in piece.sites for new in _other_operators(site, rng)]
    if not pairs:
        return None
    site, new = rng.choice(pairs)
    return done(piece, [(site, new)], f"{shown(site.node)} becomes {shown(new)}")


def graft(piece: EditTarget, rng: Random) -> Change | None:
    """Replaces an expression by one from an inspiration or from elsewhere in the program."""
    site = draw_site(piece, rng, truths=True)
    if site is None:
        return None
    donor = draw_donor(piece, site, rng, truth=site.truth)
    if donor is None or ast.dump(donor) == ast.dump(site.node):
        return None
    return done(piece, [(site, donor)], f"{shown(site.node)} becomes {shown(donor)}")


def add_term(piece: EditTarget, rng: Random) -> Change | None:
    """Adds to an expression, or multiplies it by, a scaled safe function of another one."""
    site = draw_site(piece, rng)
    donor = None if site is None else draw_donor(piece, site, rng)
    if site is None or donor is None:
        return None
    term = _through_safe_function(piece, ast.unparse(donor), rng)
    whole, scale = ast.unparse(site.node), draw_scale(rng)
    if rng.random() < 0.75:
        text = f"({whole}) {rng.choice('+-')} {scale} * {term}"
    else:
        text = f"({whole}) * (1.0 {rng.choice('+-')} {scale} * {term})"
    return done(piece, [(site, read(text))], f"{shown(site.node)} gains {scale} * {term}")


def add_threshold(piece: EditTarget, rng: Random) -> Change | None:
    """Lets an expression take another value on one side of a threshold."""
    site = draw_site(piece, rng)
    donor = None if site is None else draw_donor(piece, site, rng)
    if site is None or donor is None:
        return None
    whole = ast.unparse(site.node)
    drawn = ast.unparse(donor)
    match rng.randrange(4):
        case 0:
            other = f"{draw_scale(rng)} * ({whole})"
        case 1:
            other = f"({whole}) {rng.choice('+-')} {draw_scale(rng)}"
        case 2:
            other = str(draw_scale(rng) * rng.choice((-1, 1)))
        case _:
            graft = draw_donor(piece, site, rng)
            other = f"({whole})" if graft is None else f"({ast.unparse(graft)})"
    if rng.random() < 0.5:
        test = f"({drawn}) {rng.choice('<>')} {draw_scale(rng)}"
    else:
        test = f"abs(({drawn}) - {draw_scale(rng)}) < {draw_scale(rng)}"  # a band
    if piece.numpy:
        text = f"{piece.numpy}.where({test}, {other}, {whole})"
    else:
        text = f"(({other}) if {test} else ({whole}))"
    return done(piece, [(site, read(text))], f"{shown(site.node)} splits where {test}")


def add_profile(piece: EditTarget, rng: Random) -> Change | None:
    """Adds a drawn piecewise-linear function of another expression: a dip here, a rise there.

    One threshold rarely helps where two would; a profile holds several, and leaves numbers that
    `tune` can move one by one.  Needs numpy.
    """
    site = draw_site(piece, rng) if piece.numpy else None
    donor = None if site is None else draw_donor(piece, site, rng)
    if site is None or donor is None:
        return None
    top, scale = draw_scale(rng) * 2.0, draw_scale(rng)
    knots = [short(top * share) for share in (0.0, 0.03, 0.1, 0.2, 0.4, 1.0)]
    heights = [short(rng.gauss(0.0, scale)) for _ in knots]
    term = f"{piece.numpy}.interp({ast.unparse(donor)}, {knots}, {heights})"
    text = f"({ast.unparse(site.node)}) + {term}"
    return done(piece, [(site, read(text))], f"{shown(site.node)} gains {term}")


def simplify(piece: EditTarget, rng: Random) -> Change | None:
    """Replaces an expression by one of its parts; what keeps programs from only growing."""
    pairs = [
        (site, part)
        for site in piece.sites
        if not site.structural
        for part in _parts(site.node, piece.numpy)
    ]
    if not pairs:
        return None
    site, part = rng.choice(pairs)
    return done(piece, [(site, part)], f"{shown(site.node)} becomes {shown(part)}")


def _numeric(site: Site) -> int | float | None:
    return number(site.node)


def _other_operators(site: Site, rng: Random) -> list[ast.expr]:
    """Returns at most one replacement, so that a long expression is not drawn more often."""
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
    for one, other in (*_TWINS, *((b, a) for a, b in _TWINS)):
        match node.func:
            case ast.Attribute(value=value, attr=name) if name == one:
                function: ast.expr = ast.Attribute(value, other, ast.Load())
                return [ast.Call(function, node.args, node.keywords)]
            case ast.Name(id=name) if name == one and {one, other} <= SAFE_BUILTINS:
                return [ast.Call(ast.Name(other, ast.Load()), node.args, node.keywords)]
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


def _through_safe_function(piece: EditTarget, inner: str, rng: Random) -> str:
    """Returns a call that is finite for every finite argument, barring overflow."""
    if piece.numpy:
        np = piece.numpy
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
