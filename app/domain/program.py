"""Programs: immutable source texts, identified by their content."""

import ast
import contextlib
import hashlib
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.source.syntax import (
    UNPARSABLE,
    remembered,
    syntax_tree,
    tree_text,
    with_numbered_locals,
)

ProgramId: TypeAlias = str
"""Sixty-four hex digits: the SHA-256 of a program's exact source."""

_HOLDS_STATEMENTS = ast.stmt, ast.ExceptHandler, ast.match_case


@dataclass(frozen=True, slots=True)
class Program:
    """One complete source text.  Two programs with equal source are the same program.

    Attributes:
      source: The whole text, Unicode without NUL characters.
      language: Lower-case name of the language, as used in Markdown fences.
    """

    source: str
    language: str = "python"

    @property
    def id(self) -> ProgramId:
        return hashlib.sha256(self.source.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(program: Program) -> str:
    """Returns a digest that programs share if they differ only in what no run of them can show.

    That is layout, comments, docstrings, and the names of local variables; parameters keep their
    names, which callers may use.

    The fingerprint of source that does not parse is that of its text with collapsed white space, so
    that layout does not make a program with a syntax error a new one.
    """
    python = program.language == "python"
    return (_python_fingerprint if python else _text_fingerprint)(program.source)


@remembered
def _python_fingerprint(source: str) -> str:
    with contextlib.suppress(*UNPARSABLE):
        return _digest(tree_text(with_numbered_locals(_without_docstrings(syntax_tree(source)))))
    return _text_fingerprint(source)


def _text_fingerprint(source: str) -> str:
    return _digest(" ".join(source.split()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # statements alone: a walk of all expressions takes as long as the parser
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str())), *rest]:
                    node.body = rest or [ast.Pass()]
        for value in vars(node).values():
            if isinstance(value, list):
                nodes += [part for part in value if isinstance(part, _HOLDS_STATEMENTS)]
    return tree
