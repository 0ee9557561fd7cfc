"""Patches: how a program of several files differs from another, as git applies it."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from typing import Literal, TypeAlias

from app.domain.program import Program

_MISSING_END = "\\ No newline at end of file\n"
_HUNKS = "--- "
"""Start of the line below which a file's patch has nothing but its lines."""

Kind: TypeAlias = Literal["changed", "added", "removed"]


@dataclass(frozen=True, slots=True)
class Change:
    """How one file differs between two programs.

    Attributes:
      path: The file's, below the folder of the program.
      kind: What became of it.
      patch: As git applies it.
    """

    path: str
    kind: Kind
    patch: str

    @property
    def difference(self) -> str:
        """The unified difference, without git's own lines; "" where only an empty file differs."""
        lines = self.patch.split("\n")
        first = next((n for n, line in enumerate(lines) if line.startswith(_HUNKS)), len(lines))
        return "\n".join(lines[first:])


def patch_of(before: Program, after: Program) -> str:
    """Returns the patch that makes one program of several files of another; "" for equal ones.

    Its paths are relative to the folder of the program: `patch -p1` in that folder applies it, and
    `git apply --directory=PATH/TO/FOLDER` in a git repository around it.
    """
    return "".join(change.patch for change in changes_of(before, after))


def changes_of(before: Program, after: Program) -> list[Change]:
    """Returns the files that differ between two programs of several, by path."""
    old = {file.path: file.source for file in before.files}
    new = {file.path: file.source for file in after.files}
    return [
        Change(path, _kind(was, becomes), "".join(_of_file(path, was, becomes)))
        for path in sorted(old.keys() | new.keys())
        if (was := old.get(path)) != (becomes := new.get(path))
    ]


def _kind(old: str | None, new: str | None) -> Kind:
    if old is None:
        return "added"
    return "removed" if new is None else "changed"


def _of_file(path: str, old: str | None, new: str | None) -> Iterator[str]:
    yield f"diff --git a/{path} b/{path}\n"
    if old is None:
        yield "new file mode 100644\n"
    if new is None:
        yield "deleted file mode 100644\n"
    before = "/dev/null" if old is None else f"a/{path}"
    after = "/dev/null" if new is None else f"b/{path}"
    for line in unified_diff(_lines(old or ""), _lines(new or ""), before, after):
        yield line if line.endswith("\n") else f"{line}\n{_MISSING_END}"


def _lines(text: str) -> list[str]:
    """Returns the lines with their ends; only a line feed ends one, as git has it."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
