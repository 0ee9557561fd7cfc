"""Programs: immutable source texts, identified by their content."""

import ast
import contextlib
import hashlib
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.source.syntax import UNPARSABLE, syntax_tree

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


def fingerprint(program: Program) -> str:
    """Returns a digest shared by programs that differ only in layout, comments or docstrings.

    The fingerprint of source that does not parse is that of its text with collapsed white space, so
    that layout does not make a program with a syntax error a new one.
    """
    text = " ".join(program.source.split())
    if program.language == "python":
        with contextlib.suppress(*UNPARSABLE):
            text = ast.dump(_without_docstrings(syntax_tree(program.source)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str())), *rest]:
                    node.body = rest or [ast.Pass()]
    return tree
