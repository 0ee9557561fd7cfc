"""Tree edits of statements: removed, written twice, exchanged."""

import ast
from collections.abc import Sequence
from itertools import pairwise
from random import Random

from app.domain.operators.tree_edits import Change, EditTarget
from app.domain.source.sites import SourceTree
from app.domain.source.syntax import statements

_MOVABLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.If | ast.For | ast.While


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
        for node in statements(source.tree)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
        and source.within(node)
    ]
    if not places:
        return None
    chosen = rng.choice(places)
    kinds = [kind for kind in (ast.Add, ast.Sub, ast.Mult) if not isinstance(chosen.op, kind)]
    first, end = source.span(chosen)
    new = ast.unparse(ast.AugAssign(chosen.target, rng.choice(kinds)(), chosen.value))
    text = source.encoded[:first] + new.encode() + source.encoded[end:]
    return Change(text.decode(), f"line {chosen.lineno}: becomes {new[:60]}")


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    """Returns every list of statements inside functions, in the order of `ast.walk`."""
    bodies: list[list[ast.stmt]] = []
    for function in statements(tree):
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
