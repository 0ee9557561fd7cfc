"""Syntax-tree edits of statements: delete, duplicate, reorder; whole lines at a time."""

import ast
from collections.abc import Sequence
from itertools import pairwise
from random import Random

from app.domain.operators.edit_sites import Source
from app.domain.operators.edit_target import Change, EditTarget

_MOVABLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.If | ast.For | ast.While


def delete(piece: EditTarget, rng: Random) -> Change | None:
    """Removes a statement; a body keeps at least one."""
    source = piece.source
    places = [
        statement
        for body in _bodies(source.tree)
        if len(body) > 1
        for statement in body
        if _whole_lines(source, statement)
    ]
    if not places:
        return None
    doomed = rng.choice(places)
    first, end = _line_span(source, doomed)
    text = source.encoded[:first] + source.encoded[end:]
    return Change(text.decode(), f"line {doomed.lineno}: deleted")


def duplicate(piece: EditTarget, rng: Random) -> Change | None:
    """Writes a statement twice."""
    source = piece.source
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


def reorder(piece: EditTarget, rng: Random) -> Change | None:
    """Lets two neighbouring statements change places."""
    source = piece.source
    pairs = [
        (one, other)
        for body in _bodies(source.tree)
        for one, other in pairwise(body)
        if _whole_lines(source, one) and _whole_lines(source, other)
    ]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    (first, one_end), (other_first, end) = _line_span(source, one), _line_span(source, other)
    text = source.encoded
    text = (
        text[:first]
        + text[other_first:end]
        + text[one_end:other_first]
        + text[first:one_end]
        + text[end:]
    )
    return Change(text.decode(), f"lines {one.lineno} and {other.lineno} change places")


def swap_augmented(piece: EditTarget, rng: Random) -> Change | None:
    """Replaces the operator of an augmented assignment."""
    source = piece.source
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


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    """Returns every statement list inside functions, in the order of the walk."""
    found: list[list[ast.stmt]] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            _collect(function.body, found)
    return found


def _collect(body: Sequence[ast.stmt], found: list[list[ast.stmt]]) -> None:
    found.append(list(body))
    for statement in body:
        match statement:
            case ast.If(body=inner, orelse=other) | ast.For(body=inner, orelse=other):
                _collect(inner, found)
                if other:
                    _collect(other, found)
            case ast.While(body=inner) | ast.With(body=inner) | ast.Try(body=inner):
                _collect(inner, found)


def _whole_lines(source: Source, statement: ast.stmt) -> bool:
    """Says whether a statement may be moved: of a movable kind, and alone on changeable lines."""
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


def _line_span(source: Source, statement: ast.stmt) -> tuple[int, int]:
    last = statement.end_lineno or statement.lineno
    return source.starts[statement.lineno - 1], source.starts[last]
