"""Definitions of a Python program: its functions, methods and classes, which one reply replaces."""

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.domain.program import Program
from app.domain.source.regions import lines, parse
from app.domain.source.syntax import (
    FUNCTION_NODES,
    FunctionNode,
    first_line,
    top_level,
    tree_or_none,
)

# A longer class is replaced method by method only.
_LINES_OF_A_CLASS = 80


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, a method or a class of a program.

    Attributes:
      name: Qualified, as `search` or `Solver.step`.
      first, end: Its lines, from 0: the first is that of its first decorator, `end` is excluded.
      parameters: Names of its positional parameters; () for a class.
    """

    name: str
    first: int
    end: int
    parameters: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        """Number of its lines."""
        return self.end - self.first

    def text(self, source: str) -> str:
        """Returns its text in a source, without the indentation of its first line."""
        return textwrap.dedent("".join(lines(source)[self.first : self.end]))


def changeable_definitions(program: Program) -> list[Definition]:
    """Returns the definitions that a child may change, in the order of the text.

    These are the functions, methods and short classes whose lines all lie in one EVOLVE-BLOCK, or
    anywhere without blocks.  Functions inside functions are parts of these.
    """
    if program.language != "python":
        return []
    regions = parse(program.source)
    return [
        each
        for each in _definitions(program.source)
        if not regions.blocks
        or any(block.first <= each.first and each.end <= block.end for block in regions.blocks)
    ]


def outline(source: str, kept: Sequence[Definition]) -> str:
    """Returns a program in which every function but the kept ones is its header and docstring.

    The kept definitions, and the functions in them, stay as they are.  A source that does not parse
    is returned unchanged.
    """
    tree = tree_or_none(source)
    if tree is None:
        return source
    text = lines(source)
    for node in reversed(list(_outermost_functions(tree.body))):
        if any(each.first < (node.end_lineno or 0) and node.lineno <= each.end for each in kept):
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if body and body[0].lineno > node.lineno:
            first = body[0].lineno - 1
            indent = text[first][: len(text[first]) - len(text[first].lstrip())]
            text[first : node.end_lineno or first + 1] = [f"{indent}...\n"]
    return "".join(text)


def positional(node: FunctionNode) -> tuple[str, ...]:
    """Returns the names of a function's positional parameters, in order."""
    return tuple(each.arg for each in (*node.args.posonlyargs, *node.args.args))


def _definitions(source: str) -> Iterator[Definition]:
    for node in top_level(source):
        if isinstance(node, FUNCTION_NODES):
            yield _definition(node.name, node)
        elif isinstance(node, ast.ClassDef):
            whole = Definition(node.name, first_line(node), node.end_lineno or node.lineno)
            if whole.lines <= _LINES_OF_A_CLASS:
                yield whole
            for part in node.body:
                if isinstance(part, FUNCTION_NODES):
                    yield _definition(f"{node.name}.{part.name}", part)


def _definition(name: str, node: FunctionNode) -> Definition:
    return Definition(name, first_line(node), node.end_lineno or node.lineno, positional(node))


def _outermost_functions(body: Sequence[ast.stmt]) -> Iterator[FunctionNode]:
    for node in body:
        if isinstance(node, FUNCTION_NODES):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _outermost_functions(node.body)
