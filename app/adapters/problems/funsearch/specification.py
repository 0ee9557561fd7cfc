"""What a specification's text says: which function scores, which evolves, the system prompt.

The text is parsed, never compiled or run.

Source: the released code of Romera-Paredes et al. 2024, and files in the wild: decorators called or
not, in comments, or absent where the functions are called `evaluate` and `priority`.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.domain.problem import ProblemError
from app.domain.source import regions
from app.domain.source.syntax import tree_or_none

Mark: TypeAlias = Literal["run", "evolve"]

_NAMED: dict[Mark, str] = {"run": "evaluate", "evolve": "priority"}
"""The functions of a specification without decorators."""
_IN_COMMENT = re.compile(r"^[ \t]*#[ \t]*@funsearch\.(run|evolve)\b", re.MULTILINE)
_SYSTEM_PROMPT = re.compile(
    r"""^###[ \t]*SYSTEM PROMPT[^\n]*\n\s*(\"{3}|'{3})(.*?)\1\s*\n"""
    r"""###[ \t]*END SYSTEM PROMPT[^\n]*\n""",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Specification:
    """A specification.

    Attributes:
      run: The function that scores.
      evolve: The function that evolves.
      required: The parameters of `run` without a default.
      takes_input: Whether `run` may be given an argument.
      program: The text as a program: EVOLVE-BLOCK markers around the function that evolves, without
        the system prompt.
      instructions: The system prompt, else the docstring of the file.
    """

    run: str
    evolve: str
    required: tuple[str, ...]
    takes_input: bool
    program: str
    instructions: str


def is_specification(text: str, *, decorated: bool = False) -> bool:
    """Returns whether a text has a function that scores and one that evolves.

    Args:
      text: The text.
      decorated: Whether names alone do not count.
    """
    tree = tree_or_none(text)
    if tree is None:
        return False
    marks: tuple[Mark, Mark] = ("run", "evolve")
    return all(
        _marked(text, tree, mark) or (not decorated and _named(tree, mark)) for mark in marks
    )


def parsed(text: str, where: str) -> Specification:
    """Returns what a specification says.

    Raises:
      ProblemError: It is not Python, or not exactly one function scores or evolves.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ProblemError(
            f"syntax error: {error}", where=f"{where}{line}", remedy="Correct the line."
        ) from error
    run, evolve = _one(text, tree, "run", where), _one(text, tree, "evolve", where)
    if run.name == evolve.name:
        raise ProblemError(
            "the function that scores cannot be the one that evolves",
            where=f"{where}:{run.lineno}",
            value=run.name,
            remedy="Decorate two functions.",
        )
    names = [parameter.arg for parameter in (*run.args.posonlyargs, *run.args.args)]
    prompt = _SYSTEM_PROMPT.search(text)
    return Specification(
        run=run.name,
        evolve=evolve.name,
        required=tuple(names[: len(names) - len(run.args.defaults)]),
        takes_input=bool(names or run.args.vararg),
        program=_SYSTEM_PROMPT.sub("", _with_markers(text, evolve), count=1),
        instructions=(prompt[2] if prompt else ast.get_docstring(tree) or "").strip(),
    )


def runnable(source: str) -> str:
    """Returns a specification, or a program made of one, as text that can be imported.

    Its decorators become comments, so that it needs no `import funsearch`.
    """
    tree = tree_or_none(source) if "@" in source else None
    if tree is None:
        return source
    lines, names = regions.lines(source), _decorators(tree)
    for decorator in (decorator for node in _functions(tree) for decorator in node.decorator_list):
        if _mark(decorator, names):
            for row in range(decorator.lineno - 1, decorator.end_lineno or decorator.lineno):
                lines[row] = f"# {lines[row]}"
    return "".join(lines)


def _one(text: str, tree: ast.Module, mark: Mark, where: str) -> ast.FunctionDef:
    found = _marked(text, tree, mark) or _named(tree, mark)
    if len(found) == 1:
        return found[0]
    raise ProblemError(
        f"Expected 1 function decorated with `@funsearch.{mark}`, found {len(found)}",
        where=f"{where}:{found[1].lineno}" if found else where,
        value=", ".join(node.name for node in found),
        remedy="Decorate exactly one top-level function.",
    )


def _marked(text: str, tree: ast.Module, mark: Mark) -> list[ast.FunctionDef]:
    """Returns the top-level functions with a decorator, else those below one in a comment."""
    names = _decorators(tree)
    functions = _functions(tree)
    decorated = [
        node
        for node in functions
        if any(_mark(decorator, names) == mark for decorator in node.decorator_list)
    ]
    if decorated:
        return decorated
    rows = [
        text.count("\n", 0, found.start()) + 1
        for found in _IN_COMMENT.finditer(text)
        if found[1] == mark
    ]
    below = [next((node for node in functions if node.lineno > row), None) for row in rows]
    return [node for node in below if node is not None]


def _named(tree: ast.Module, mark: Mark) -> list[ast.FunctionDef]:
    return [node for node in _functions(tree) if node.name == _NAMED[mark]]


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def _decorators(tree: ast.Module) -> dict[str, str]:
    """Returns which mark each name of the package's decorators stands for."""
    packages = ["funsearch"]
    names: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.Import(names=imported):
                packages += [
                    alias.asname for alias in imported if alias.name == "funsearch" and alias.asname
                ]
            case ast.ImportFrom(module="funsearch", names=imported):
                names |= {alias.asname or alias.name: alias.name for alias in imported}
    return names | {f"{package}.{mark}": mark for package in packages for mark in _NAMED}


def _mark(decorator: ast.expr, names: Mapping[str, str]) -> str | None:
    return names.get(ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator))


def _with_markers(text: str, evolve: ast.FunctionDef) -> str:
    """Returns the text with markers around the function that evolves, unless it has markers."""
    if regions.MARKER in text:
        return text
    lines: Sequence[str] = regions.lines(text)
    first, end = evolve.lineno - 1, evolve.end_lineno or evolve.lineno
    last = lines[end - 1] if lines[end - 1].endswith("\n") else lines[end - 1] + "\n"
    inside = [*lines[first : end - 1], last]
    start, stop = f"# {regions.MARKER}-START\n", f"# {regions.MARKER}-END\n"
    return "".join([*lines[:first], start, *inside, stop, *lines[end:]])
