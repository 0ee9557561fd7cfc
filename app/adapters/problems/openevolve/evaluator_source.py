"""The functions that an evaluator's text defines; it is parsed, never compiled or run."""

import ast
import warnings
from collections.abc import Iterator, Sequence

from app.domain.problem import ProblemError
from app.domain.source.syntax import syntax_tree

EVALUATE = "evaluate"
PROBE = "probe_behaviour"
VALIDATION = "evaluate_validation"
STAGES = ("evaluate_stage1", "evaluate_stage2", "evaluate_stage3")


def defined_functions(text: str, where: str) -> frozenset[str]:
    """Returns those of `evaluate`, the stage functions, probe and validation that it defines.

    A definition, an assignment and an import at module level all count, inside `if`, `try` and
    `with` too; `from x import *` may define any of them, and is taken to define `evaluate`.

    Raises:
      ProblemError: The text is not Python.
    """
    tree = _parsed(text, where)
    defined: set[str] = set()
    for node in _top_level(tree.body):
        names = _bound(node)
        defined |= names & {EVALUATE, PROBE, VALIDATION, *STAGES}
        if "*" in names:
            defined.add(EVALUATE)
    return frozenset(defined)


def stages(
    defined: frozenset[str], *, cascade: bool, thresholds: Sequence[float], where: str
) -> tuple[str, ...]:
    """Returns the functions that are called, in order: at least one.

    Source: OpenEvolve 0.4.0: with `cascade` and `evaluate_stage1`, the stage functions are called
    and `evaluate` never is; a missing function or a missing threshold ends the cascade.

    Raises:
      ProblemError: There is nothing to call.
    """
    if cascade and STAGES[0] in defined:
        called = [STAGES[0]]
        for stage in STAGES[1 : len(thresholds) + 1]:
            if stage not in defined:
                break
            called.append(stage)
        return tuple(called)
    if EVALUATE not in defined:
        raise ProblemError(
            "the evaluator has no function `evaluate`",
            where=where,
            value=", ".join(sorted(defined)),
            remedy="Define `def evaluate(program_path):` that returns a dict of metrics"
            + (", or switch `cascade_evaluation` on." if STAGES[0] in defined else "."),
        )
    return (EVALUATE,)


def _parsed(text: str, where: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # Invalid escapes and the like concern only the author.
            warnings.simplefilter("ignore")
            return syntax_tree(text)
    except SyntaxError as error:
        raise ProblemError(
            f"syntax error: {error.msg}",
            where=f"{where}:{error.lineno}" if error.lineno else where,
            value=(error.text or "").strip()[:120],
            remedy="Correct the line.",
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(
            "not Python that can be parsed",
            where=where,
            value=str(error)[:120],
            remedy="Correct the file.",
        ) from error


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        match node:
            case ast.If():
                yield from _top_level([*node.body, *node.orelse])
            case ast.Try():
                handlers = [part for handler in node.handlers for part in handler.body]
                yield from _top_level([*node.body, *handlers, *node.orelse, *node.finalbody])
            case ast.With():
                yield from _top_level(node.body)
            case _:
                pass


def _bound(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name for alias in node.names}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return {name}
        case _:
            return set()
