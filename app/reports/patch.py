"""Patches: how a program of several files differs from another, as git applies it."""

from collections.abc import Iterator
from difflib import unified_diff

from app.domain.program import Program

_MISSING_END = "\\ No newline at end of file\n"


def patch_of(before: Program, after: Program) -> str:
    """Returns the patch that makes one program of several files of another; "" for equal ones.

    Its paths are relative to the folder of the program: `git apply` in that folder applies it.
    """
    old = {file.path: file.source for file in before.files}
    new = {file.path: file.source for file in after.files}
    changed = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    return "".join(
        line for path in changed for line in _of_file(path, old.get(path), new.get(path))
    )


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
