"""Programs: immutable source texts, identified by their content."""

import ast
import contextlib
import hashlib
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.source.syntax import (
    UNPARSABLE,
    numbered_locals,
    remembered,
    shared_tree,
    statements,
    syntax_fault,
    tree_text,
)

ProgramId: TypeAlias = str
"""Sixty-four hex digits: the SHA-256 of a program's exact source."""


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


def parses(program: Program) -> bool:
    """Returns whether a program is Python without a syntax error."""
    return program.language == "python" and syntax_fault(program.source) is None


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
        tree = shared_tree(source)
        return _digest(tree_text(tree, _without_docstrings(tree) | numbered_locals(tree)))
    return _text_fingerprint(source)


def _text_fingerprint(source: str) -> str:
    return _digest(" ".join(source.split()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _without_docstrings(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """Returns what has a docstring, without it."""
    bare: dict[ast.AST, ast.AST] = {}
    for node in statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str())), *rest]:
                    bare[node] = type(node)(**{**vars(node), "body": rest or [ast.Pass()]})
    return bare
