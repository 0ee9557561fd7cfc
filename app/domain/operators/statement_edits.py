"""Tree edits of statements: removed, written twice, exchanged."""

import ast
from collections.abc import Sequence
from itertools import pairwise
from random import Random

from app.domain.operators.tree_edits import Change, EditTarget, spliced
from app.domain.source.kinds.program import Kinds
from app.domain.source.sites import SourceTree
from app.domain.source.syntax import (
    FUNCTION_NODES,
    argument_names,
    bound_names,
    nodes,
    statements,
)

_MOVABLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.If | ast.For | ast.While

_FILLING = ("append", "add", "extend", "insert", "update")


def delete(target: EditTarget, rng: Random) -> Change | None:
    """Removes a statement; a body keeps at least one."""
    source = target.source
    places = [
        statement
        for body in _bodies(source.tree)
        if len(body) > 1
        for statement in body
        if _whole_lines(source, statement)
        and not _binds_first(source, statement)
        and not _converts(target.kinds, statement)
        and not _fills(statement)
    ]
    if not places:
        return None
    chosen = rng.choice(places)
    return spliced(source, _line_span(source, chosen), b"", "deleted", chosen.lineno)


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
    again = source.encoded[first:end]
    return spliced(source, (end, end), again, "duplicated", chosen.lineno)


def reorder(target: EditTarget, rng: Random) -> Change | None:
    """Exchanges two neighbouring statements."""
    source = target.source
    pairs = [
        (a, b)
        for body in _bodies(source.tree)
        for a, b in pairwise(body)
        if _whole_lines(source, a) and _whole_lines(source, b) and _exchangeable(target.kinds, a, b)
    ]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    (first, a_end), (b_first, end) = _line_span(source, a), _line_span(source, b)
    text = source.encoded
    text = text[:first] + text[b_first:end] + text[a_end:b_first] + text[first:a_end] + text[end:]
    return Change(text.decode(), f"lines {a.lineno} and {b.lineno} change places", a.lineno)


def swap_augmented(target: EditTarget, rng: Random) -> Change | None:
    """Replaces the operator of an augmented assignment."""
    source = target.source
    places = [
        node
        for node in statements(source.tree)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
        and source.within(node)
        and _calculated(target.kinds, node.target)
    ]
    if not places:
        return None
    chosen = rng.choice(places)
    kinds = [kind for kind in (ast.Add, ast.Sub, ast.Mult) if not isinstance(chosen.op, kind)]
    new = ast.unparse(ast.AugAssign(chosen.target, rng.choice(kinds)(), chosen.value))
    note = f"becomes {new[:60]}"
    return spliced(source, source.span(chosen), new.encode(), note, chosen.lineno)


def _binds_first(source: SourceTree, statement: ast.stmt) -> bool:
    """Returns whether a statement is the first that assigns a name which its function reads."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    function = min(
        (
            node
            for node in statements(source.tree)
            if isinstance(node, FUNCTION_NODES)
            and node.lineno < statement.lineno <= (node.end_lineno or 0)
        ),
        key=lambda node: (node.end_lineno or 0) - node.lineno,
    )
    uses = [use for use in nodes(function, {ast.Name}) if isinstance(use, ast.Name)]
    earlier = {
        use.id for use in uses if isinstance(use.ctx, ast.Store) and use.lineno < statement.lineno
    }
    read = {use.id for use in uses if isinstance(use.ctx, ast.Load)}
    return not bound_names([statement]) & read <= earlier.union(argument_names(function.args))


def _fills(statement: ast.stmt) -> bool:
    """Returns whether a statement puts elements into a list or a mapping."""
    return any(
        (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.Attribute) and node.attr in _FILLING)
        for node in nodes(statement, {ast.Subscript, ast.Attribute})
    )


def _converts(kinds: Kinds, statement: ast.stmt) -> bool:
    """Returns whether a statement gives a name a value of another kind, as `a = np.array(a)`."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value in kinds.scopes:
            holder = kinds.scopes[value].holding(name)
            after = kinds.value(value)
            others = () if holder is None else holder.sources.get(name, {})
            known = [
                kinds.value(other) for other, part in others if not part and other is not value
            ]
            return any(
                not (one.scalar and after.scalar) and one.kind is not after.kind for one in known
            )
    return False


def _exchangeable(kinds: Kinds, one: ast.stmt, other: ast.stmt) -> bool:
    """Returns whether two statements share no name but those of numbers."""
    found = [
        {use.id: use for use in nodes(statement, {ast.Name}) if isinstance(use, ast.Name)}
        for statement in (one, other)
    ]
    stored = bound_names([one]) | bound_names([other])
    return all(
        kinds.value(use).numeric or not isinstance(use.ctx, ast.Load)
        for names in found
        for name, use in names.items()
        if name in stored and name in found[0] and name in found[1]
    )


def _calculated(kinds: Kinds, name: ast.expr) -> bool:
    """Returns whether a variable is a number that no size or position is made from."""
    if not kinds.value(name).numeric:
        return False
    if not isinstance(name, ast.Name):
        return True
    holder = kinds.scopes[name].holding(name.id)
    return holder is None or (holder.name, name.id) not in kinds.sized


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    """Returns every list of statements inside functions, in the order of `ast.walk`."""
    bodies: list[list[ast.stmt]] = []
    for function in statements(tree):
        if isinstance(function, FUNCTION_NODES):
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
            # The statement is a docstring.
            return False
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
