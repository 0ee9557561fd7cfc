"""Functions of a Python program: the one that evolves, its versions in a file, its next body.

Source: Romera-Paredes et al. 2024 (FunSearch) and its released code, for the file of versions and
the reading of a completion.  Departures: a program is kept as it is but for the one body, instead
of being put together from its parts; a reply may hold the whole function, as chat models write it;
a body that calls an earlier version is refused before it is run.
"""

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.program import Program
from app.domain.source.regions import lines, parse
from app.domain.source.syntax import syntax_tree

_MARKER = re.compile(r"\W*EVOLVE-BLOCK-(?:START|END)\b")


@dataclass(frozen=True, slots=True)
class Function:
    """A top-level function, cut up; the texts follow each other in the source.

    Attributes:
      above, below: The source before its `def` and after its end.
      header: From `def` to the colon, with the line end.
      docstring: With its lines' ends; "" where there is none.
      body: The rest of the function.
      parameters: Names in order.
      indent: White space before each statement of the body.
    """

    name: str
    above: str
    header: str
    docstring: str
    body: str
    below: str
    parameters: tuple[str, ...]
    indent: str

    def source(self, body: str) -> str:
        """Returns the program with another body."""
        return "".join((self.above, self.header, self.docstring, body, self.below))


def evolving(program: Program, named: str = "") -> str | None:
    """Returns the name of the function that evolves; None where the program does not say which.

    It is the one named; else the one decorated `@….evolve`; else the only function inside the
    EVOLVE-BLOCK regions; else the only function.
    """
    found = _functions(program.source)
    if named:
        return named if any(node.name == named for node in found) else None
    marked = [node for node in found if any(_evolves(one) for one in node.decorator_list)]
    regions = parse(program.source)
    inside = [node for node in found if regions.blocks and regions.holds(node.lineno - 1)]
    for some in (marked, inside, [] if regions.blocks else found):
        if some:
            return some[0].name if len(some) == 1 else None
    return None


def cut_up(source: str, name: str) -> Function | None:
    """Returns the last top-level function of that name; None where there is none."""
    nodes = [node for node in _functions(source) if node.name == name]
    if not nodes:
        return None
    node, text = nodes[-1], lines(source)
    first, end = node.lineno - 1, node.end_lineno or node.lineno
    body, end_of_header = node.body[0], _header_end(text, node)
    if end_of_header is None:  # the body stands on the line of the `def`
        line = text[body.lineno - 1]
        at = len(line.encode()[: body.col_offset].decode())
        header = "".join(text[first : body.lineno - 1]) + line[:at].rstrip() + "\n"
        inner = "    " + line[at:] + "".join(text[body.lineno : end])
        return _function(node, text, first, end, header, "", inner, "    ")
    described = isinstance(body, ast.Expr) and isinstance(body.value, ast.Constant)
    described = described and isinstance(ast.get_docstring(node, clean=False), str)
    start = body.end_lineno or body.lineno
    docstring = "".join(text[end_of_header:start]) if described else ""
    inner = "".join(text[start if described else end_of_header : end])
    line = text[body.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    header = "".join(text[first:end_of_header])
    return _function(node, text, first, end, header, docstring, inner, indent)


def versions(home: Program, programs: Sequence[Program], name: str) -> str:
    """Returns the file a model completes: versions in order, then the header of the next.

    Args:
      home: The program that gets the next body; what stands above its functions is shown.
      programs: Each with a function of that name, worst first.
      name: The function.

    Raises:
      ValueError: One of them has no such function.
    """
    parts = [_preface(home.source)]
    for number, program in enumerate(programs):
        function = _required(program, name)
        docstring = function.docstring if number == 0 else _improved(function, number)
        text = function.header + docstring + function.body
        parts.append(renamed(text, name, f"{name}_v{number}").rstrip("\n") + "\n")
    own = _required(home, name)
    header = renamed(own.header, name, f"{name}_v{len(programs)}")
    parts.append(header + _improved(own, len(programs)))
    return "\n\n".join(part for part in parts if part.strip())


def _required(program: Program, name: str) -> Function:
    function = cut_up(program.source.replace("\r\n", "\n"), name)
    if function is None:
        raise ValueError(f"program {program.id[:8]} has no function {name!r}")
    return function


def renamed(text: str, before: str, after: str) -> str:
    """Returns a function's text with its name changed where it is defined and called."""
    rows = text.split("\n")
    tokens = _tokens(text)
    for previous, token, following in reversed(
        list(zip([None, *tokens], tokens, [*tokens[1:], None], strict=False))
    ):
        if token.type != tokenize.NAME or token.string != before:
            continue
        defined = previous is not None and previous.string == "def"
        method = previous is not None and previous.string == "."
        called = following is not None and following.string == "("
        if defined or (called and not method):
            row, column = token.start
            line = rows[row - 1]
            rows[row - 1] = line[:column] + after + line[column + len(before) :]
    return "\n".join(rows)


def earlier_calls(body: str, name: str) -> list[str]:
    """Returns the versions of a function that a body names, in order."""
    version = re.compile(rf"{re.escape(name)}_v\d+")
    return [one.string for one in _tokens(body) if version.fullmatch(one.string)]


def rows_in_strings(text: str) -> frozenset[int]:
    """Returns the rows, from 1, that begin inside a string: their white space is its value."""
    return frozenset(
        row for one in _tokens(text) for row in range(one.start[0] + 1, one.end[0] + 1)
    )


def _functions(source: str) -> list[ast.FunctionDef]:
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def _evolves(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr == "evolve"


def _header_end(text: Sequence[str], node: ast.FunctionDef) -> int | None:
    """Returns the index of the line after the header; None where the body begins in it."""
    first = node.lineno - 1
    for end in range(first + 1, node.body[0].lineno):
        header = "".join(text[first:end])
        try:
            syntax_tree(header + " pass\n")
        except SyntaxError:
            continue
        return end
    return None


def _function(
    node: ast.FunctionDef,
    text: Sequence[str],
    first: int,
    end: int,
    header: str,
    docstring: str,
    body: str,
    indent: str,
) -> Function:
    told = node.args
    every = [*told.posonlyargs, *told.args, told.vararg, *told.kwonlyargs, told.kwarg]
    return Function(
        node.name,
        "".join(text[:first]),
        header,
        docstring,
        body,
        "".join(text[end:]),
        tuple(one.arg for one in every if one is not None),
        indent,
    )


def _preface(source: str) -> str:
    """Returns what stands before the first function or class, without markers."""
    tree = syntax_tree(source)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    first = next(node for node in tree.body if isinstance(node, kinds))
    line = min([first.lineno, *(one.lineno for one in first.decorator_list)])
    text = lines(source.replace("\r\n", "\n"))[: line - 1]
    above = [one for one in text if not _MARKER.match(one)]
    return "".join(above).strip("\n") + "\n"


def _improved(function: Function, number: int) -> str:
    return f'{function.indent}"""Improved version of `{function.name}_v{number - 1}`."""\n'


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
