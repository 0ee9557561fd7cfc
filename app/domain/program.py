"""Programs: immutable source texts of one file or several, identified by their content."""

import ast
import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from app.domain.source.languages import language_of
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
"""Sixty-four hex digits: the SHA-256 of a program's exact text, or of its files and their paths."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a program of several.

    Attributes:
      path: Relative POSIX path below the root of the repository.
      source: The whole text, Unicode without NUL characters.
    """

    path: str
    source: str

    @property
    def language(self) -> str:
        return language_of(self.path)

    @property
    def digest(self) -> str:
        return text_digest(self.source)


@dataclass(frozen=True, slots=True)
class Program:
    """A file, or several files that evolve together, of which one is in focus.

    Operators, prompts and replies work on the file in focus; the others are those beside it.  Two
    programs with equal files are the same program, whichever file is in focus.

    Attributes:
      source: The whole text of the file in focus, Unicode without NUL characters.
      language: Lower-case name of its language, as used in Markdown fences.
      path: Its relative POSIX path; "" for a program of one file, whose path means nothing.
      others: The other files, by path.
    """

    source: str
    language: str = "python"
    path: str = ""
    others: tuple[File, ...] = ()

    @classmethod
    def of_files(cls, files: Mapping[str, str]) -> Self:
        """Returns a program of several files, the first by path in focus.

        Args:
          files: Relative POSIX path to text; at least one.
        """
        first, *others = (File(path, files[path]) for path in sorted(files))
        return cls(first.source, first.language, first.path, tuple(others))

    @property
    def id(self) -> ProgramId:
        if not self.path:
            return text_digest(self.source)
        return files_id((file.path, file.digest) for file in self.files)

    @property
    def files(self) -> tuple[File, ...]:
        """All files by path; of a program of one file, that file with the path ""."""
        if not self.others:
            return (File(self.path, self.source),)
        return tuple(sorted((File(self.path, self.source), *self.others), key=lambda f: f.path))

    @property
    def text(self) -> str:
        """The text of the only file; of several files their texts, each below its path."""
        if not self.path:
            return self.source
        return "\n".join(f"===== {file.path} =====\n{file.source}" for file in self.files)

    @property
    def length(self) -> int:
        """Characters of all files together."""
        return len(self.source) + sum(len(file.source) for file in self.others)

    def focused(self, path: str) -> "Program":
        """Returns the same program with another of its files in focus.

        Raises:
          KeyError: It has no file of this path.
        """
        if path == self.path:
            return self
        files = {file.path: file for file in self.files}
        file = files.pop(path)
        return Program(file.source, file.language, path, tuple(files[p] for p in sorted(files)))

    def views(self) -> list["Program"]:
        """Returns the same program with each of its files in focus, by path."""
        return [self.focused(file.path) for file in self.files]

    def changed(self, source: str) -> "Program":
        """Returns the program with another text of the file in focus."""
        return replace(self, source=source)

    def added(self, path: str, source: str) -> "Program":
        """Returns a program of several files with one more, and the same file in focus."""
        others = sorted((*self.others, File(path, source)), key=lambda file: file.path)
        return replace(self, others=tuple(others))

    def removed(self, path: str) -> "Program":
        """Returns the program without one of its files; if it was in focus, the first is then.

        Raises:
          ValueError: It has no other file.
        """
        files = {file.path: file.source for file in self.files if file.path != path}
        if not files:
            raise ValueError(f"a program cannot be without its only file {path!r}")
        program = Program.of_files(files)
        return program if path == self.path else program.focused(self.path)


def files_id(files: Iterable[tuple[str, str]]) -> ProgramId:
    """Returns the identity of a program of several files.

    Args:
      files: Path and digest of the text of each, by path.
    """
    return text_digest("".join(f"{digest} {path}\n" for path, digest in files))


def text_digest(text: str) -> str:
    """Returns the SHA-256 of a text in UTF-8, in hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
    if not program.path:
        return _file_fingerprint(program.source, program.language)
    prints = ((_file_fingerprint(file.source, file.language), file) for file in program.files)
    return text_digest("".join(f"{digest} {file.path}\n" for digest, file in prints))


def _file_fingerprint(source: str, language: str) -> str:
    return (_python_fingerprint if language == "python" else _text_fingerprint)(source)


@remembered
def _python_fingerprint(source: str) -> str:
    with contextlib.suppress(*UNPARSABLE):
        tree = shared_tree(source)
        return text_digest(tree_text(tree, _without_docstrings(tree) | numbered_locals(tree)))
    return _text_fingerprint(source)


def _text_fingerprint(source: str) -> str:
    return text_digest(" ".join(source.split()))


def _without_docstrings(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """Returns what has a docstring, without it."""
    bare: dict[ast.AST, ast.AST] = {}
    for node in statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str())), *rest]:
                    bare[node] = type(node)(**{**vars(node), "body": rest or [ast.Pass()]})
    return bare
