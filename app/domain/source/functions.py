"""Functions of a Python program: the evolving function, its versions in a file, its next body.

Source: Romera-Paredes et al. 2024 (FunSearch) and its released code, for the file of versions and
the reading of a completion.  Departures: a program stays as it is except for one body, instead of
being assembled from its parts; a reply may hold the whole function, as chat models write it;
a body that calls an earlier version is refused before a trial.
"""

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.program import Program
from app.domain.source.regions import lines, parse
from app.domain.source.syntax import (
    DEFINITION_NODES,
    argument_names,
    first_line,
    syntax_tree,
    top_level,
    tree_or_none,
)

_MARKER = re.compile(r"\W*EVOLVE-BLOCK-(?:START|END)\b")


@dataclass(frozen=True, slots=True)
class Function:
    """A top-level function and the text around it; the texts follow each other in the source.

    Attributes:
      above, below: The source before its `def` and after its end.
      header: From `def` to the colon, with the line end.
      docstring: With its line ends; "" where there is none.
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


def evolving(program: Program, name: str = "") -> str | None:
    """Returns the name of the function that evolves; None where the program does not say which.

    That is the function called `name`; else the function decorated `@….evolve`; else the only
    function inside the EVOLVE-BLOCK regions; else the only function of the program.
    """
    nodes = _functions(program.source)
    if name:
        return name if any(node.name == name for node in nodes) else None
    marked = [node for node in nodes if any(map(_evolves, node.decorator_list))]
    regions = parse(program.source)
    inside = [node for node in nodes if regions.blocks and regions.holds(node.lineno - 1)]
    for candidates in (marked, inside, [] if regions.blocks else nodes):
        if candidates:
            return candidates[0].name if len(candidates) == 1 else None
    return None


def find_function(source: str, name: str) -> Function | None:
    """Returns the last top-level function of that name; None where there is none."""
    nodes = [node for node in _functions(source) if node.name == name]
    if not nodes:
        return None
    node, text = nodes[-1], lines(source)
    first, end = node.lineno - 1, node.end_lineno or node.lineno
    body, end_of_header = node.body[0], _header_end(text, node)
    line = text[body.lineno - 1]
    docstring = ""
    if end_of_header is None:
        # The body stands on the line of the `def`.
        column = len(line.encode()[: body.col_offset].decode())
        header = "".join(text[first : body.lineno - 1]) + line[:column].rstrip() + "\n"
        inner = "    " + line[column:] + "".join(text[body.lineno : end])
        indent = "    "
    else:
        header = "".join(text[first:end_of_header])
        start = end_of_header
        if ast.get_docstring(node, clean=False) is not None:
            start = body.end_lineno or body.lineno
            docstring = "".join(text[end_of_header:start])
        inner = "".join(text[start:end])
        indent = line[: len(line) - len(line.lstrip())]
    return Function(
        name,
        "".join(text[:first]),
        header,
        docstring,
        inner,
        "".join(text[end:]),
        argument_names(node.args),
        indent,
    )


def versions(home: Program, programs: Sequence[Program], name: str) -> str:
    """Returns the file that a model completes: versions in order, then the header of the next.

    Args:
      home: The program that gets the next body; the file begins with the text above its functions.
      programs: Each with a function of that name, worst first.
      name: The function.

    Raises:
      ValueError: A program has no such function.
    """
    parts = [_preface(home.source)]
    for number, program in enumerate(programs):
        function = _required(program, name)
        docstring = function.docstring if number == 0 else _improved(function, number)
        text = function.header + docstring + function.body
        parts.append(renamed(text, name, f"{name}_v{number}").rstrip("\n") + "\n")
    parts.append(next_header(_required(home, name), len(programs)))
    return "\n\n".join(part for part in parts if part.strip())


def next_header(own: Function, number: int) -> str:
    """Returns the header and the docstring of a function's next version, which has no body yet."""
    return renamed(own.header, own.name, f"{own.name}_v{number}") + _improved(own, number)


def _required(program: Program, name: str) -> Function:
    function = find_function(program.source.replace("\r\n", "\n"), name)
    if function is None:
        raise ValueError(f"program {program.id[:8]} has no function {name!r}")
    return function


def renamed(text: str, before: str, after: str) -> str:
    """Returns a function's text with its name replaced where it is defined and called."""
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


def defined_names(passage: str) -> frozenset[str]:
    """Returns the names of a passage's functions and classes, if it has nothing else; else none."""
    body = top_level(passage)
    definitions = [node for node in body if isinstance(node, DEFINITION_NODES)]
    only = len(definitions) == len(body)
    return frozenset(node.name for node in definitions) if only else frozenset()


def with_definitions(source: str, passage: str) -> str | None:
    """Returns a program with the functions and classes of a passage in the place of its own.

    Imports and further definitions of the passage are inserted above the first that is replaced.
    None where the passage has anything else, or replaces nothing.

    Args:
      source: The program, with Unix line ends.
      passage: Definitions, some of which have the names of top-level definitions of the program.
    """
    tree, new = tree_or_none(source), tree_or_none(passage)
    if tree is None or new is None:
        return None
    own = {node.name: node for node in tree.body if isinstance(node, DEFINITION_NODES)}
    imports = (ast.Import, ast.ImportFrom)
    if not all(isinstance(node, (*DEFINITION_NODES, *imports)) for node in new.body):
        return None
    text, rows = lines(source), lines(passage)
    replaced = {
        own[node.name]: "".join(_rows(rows, node))
        for node in new.body
        if isinstance(node, DEFINITION_NODES) and node.name in own
    }
    if not replaced:
        return None
    added = [
        "".join(_rows(rows, node)).rstrip("\n") + ("\n" if isinstance(node, imports) else "\n\n\n")
        for node in new.body
        if not (isinstance(node, DEFINITION_NODES) and node.name in own)
        and "".join(_rows(rows, node)).strip() not in source
    ]
    first = min(first_line(node) for node in replaced)
    for node in sorted(replaced, key=first_line, reverse=True):
        body = replaced[node].rstrip("\n") + "\n"
        text[first_line(node) : node.end_lineno] = [body]
        if first_line(node) == first:
            text.insert(first, "".join(added))
    return "".join(text)


def _rows(text: Sequence[str], node: ast.stmt) -> Sequence[str]:
    return text[first_line(node) : node.end_lineno]


def earlier_calls(body: str, name: str) -> list[str]:
    """Returns the names of versions of a function in a body, in order."""
    version = re.compile(rf"{re.escape(name)}_v\d+")
    return [token.string for token in _tokens(body) if version.fullmatch(token.string)]


def indented(text: str, before: str, after: str) -> str:
    """Returns a text with another indentation of its rows, but for those inside strings."""
    if before == after:
        return text
    in_strings = _rows_in_strings(text)
    return "\n".join(
        after + row.removeprefix(before) if row.strip() and number not in in_strings else row
        for number, row in enumerate(text.split("\n"), 1)
    )


def _rows_in_strings(text: str) -> frozenset[int]:
    """Returns the rows, from 1, that begin inside a string: their white space is its value."""
    return frozenset(
        row for token in _tokens(text) for row in range(token.start[0] + 1, token.end[0] + 1)
    )


def _functions(source: str) -> list[ast.FunctionDef]:
    return [node for node in top_level(source) if isinstance(node, ast.FunctionDef)]


def _evolves(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr == "evolve"


def _header_end(text: Sequence[str], node: ast.FunctionDef) -> int | None:
    """Returns the index of the line after the header; None where the body begins on that line."""
    first = node.lineno - 1
    for end in range(first + 1, node.body[0].lineno):
        header = "".join(text[first:end])
        try:
            syntax_tree(header + " pass\n")
        except SyntaxError:
            continue
        return end
    return None


def _preface(source: str) -> str:
    """Returns the text before the first function or class, without markers."""
    first = next(node for node in syntax_tree(source).body if isinstance(node, DEFINITION_NODES))
    text = lines(source.replace("\r\n", "\n"))[: first_line(first)]
    return "".join(line for line in text if not _MARKER.match(line)).strip("\n") + "\n"


def _improved(function: Function, number: int) -> str:
    return f'{function.indent}"""Improved version of `{function.name}_v{number - 1}`."""\n'


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
