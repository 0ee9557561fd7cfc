"""Paths in replies: a reply about several files is read file by file, and the changes joined."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.source.globs import matches


class ReadFile(Protocol):
    """Returns the child that a reply makes of the file in focus of a program."""

    def __call__(self, reply: Completion, program: Program, *, named: bool) -> Child:
        """Reads the reply, which stands below the path of the file if that is `named`."""
        ...


_FENCE = re.compile(r"^\s*(?:```|~~~)")
_PATH_AFTER_FENCE = re.compile(
    r"^\s*(?:```|~~~)[\w+-]*[ :]+(?:file(?:name)?=|path=)?[\"']?([^\s\"'`]+)"
)
_ABOUT_A_FILE = re.compile(
    r"^\s*(?:[#*>\s-]*)(?:(?:file|path|filename)\s*:?\s*)?[*`\"']*"
    r"(?P<path>[\w.@+-]+(?:/[\w.@+-]+)*)[*`\"']*\s*:?[*\s]*$",
    re.IGNORECASE,
)
_REMOVES = re.compile(r"^\*\*\* Delete File: *[`\"']?([^\s`\"']+)[`\"']?[ \t]*$\n?", re.MULTILINE)
_SEARCH = re.compile(r"^\s*<{5,9} ?SEARCH")
_NOT_READ = (FailureKind.NO_CODE, FailureKind.UNCHANGED)
_MOST_NAMED = 12


@dataclass(frozen=True, slots=True)
class Passage:
    """What a reply says of one file.

    Attributes:
      path: The file's; "" for the file in focus, which needs no name.
      text: The lines below the path.
    """

    path: str
    text: str


def across_files(
    read: ReadFile, reply: Completion, text: str, parent: Program, rules: EditRules
) -> Child:
    """Returns the child of a program of several files: the changes of each file in the reply.

    A file that the reply names twice is changed twice, in the order of the reply.  A path that does
    not evolve is a failure that names it.  Files that the reply removes go last.

    Args:
      read: Reads what a passage makes of the file in focus.
      reply: The reply.
      text: Its text without reasoning.
      parent: The program, whose file in focus needs no path.
      rules: With the patterns of the files that evolve.
    """
    removed = _REMOVES.findall(text)
    passages = list(_passages(_REMOVES.sub("", text) if removed else text, parent))
    child, changes, unread = parent, [], None
    for number, passage in enumerate(passages):
        path, last = passage.path or parent.path, number == len(passages) - 1
        part = replace(reply, text=passage.text, finish=reply.finish if last else "stop")
        view = _in_focus(child, path, parent, rules)
        if isinstance(view, Failure):
            return view
        made = read(part, view, named=bool(passage.path))
        if isinstance(made, Offspring):
            child = made.program
            changes.append(f"{path}: {made.changes}" if len(passages) > 1 else made.changes)
        elif made.kind in _NOT_READ:
            # Prose may name a file, and a model may repeat one that it leaves as it is.
            unread = made
        else:
            return replace(made, detail=f"{path}: {made.detail}")
    if removed:
        return without_files(child, removed, parent, rules, changes)
    if changes:
        return Offspring(child.focused(parent.path), "\n".join(changes))
    return unread or Failure(FailureKind.NO_CODE, "The reply changes no file.")


def without_files(
    child: Program,
    removed: Sequence[str],
    parent: Program,
    rules: EditRules,
    changes: Sequence[str],
) -> Child:
    """Returns a child without some of its parent's files, or a failure that names one it needs.

    Args:
      child: With its other changes made.
      removed: Paths of the files.
      parent: The program whose file in focus the child has in focus, where that is still there.
      rules: Whether files may be removed, and which may not.
      changes: The other changes, in prose.
    """
    said = list(changes)
    for path in dict.fromkeys(removed):
        why = ""
        if not rules.remove:
            why = "a child may remove no files"
        elif path == rules.entry:
            why = "it is the entry, which a child needs"
        elif not any(file.path == path for file in child.files):
            why = "there is no such file that evolves"
        elif not child.others:
            why = "a child needs a file"
        if why:
            return Failure(FailureKind.BAD_EDIT, f"{path} cannot be removed: {why}.")
        child = child.removed(path)
        said.append(f"{path}: removed")
    paths = {file.path for file in child.files}
    return Offspring(child.focused(parent.path) if parent.path in paths else child, "\n".join(said))


def _in_focus(program: Program, path: str, parent: Program, rules: EditRules) -> Program | Failure:
    """Returns a program with one of its files in focus, which may be a new and empty one."""
    paths = [file.path for file in program.files]
    if path in paths:
        return program.focused(path)
    if not matches(path, rules.evolve):
        named = ", ".join(paths[:_MOST_NAMED]) + (", ..." if len(paths) > _MOST_NAMED else "")
        return Failure(
            FailureKind.BAD_EDIT, f"The file {path} does not evolve.  These files do: {named}"
        )
    if len(set(paths) - {file.path for file in parent.files}) >= rules.new_files:
        return Failure(
            FailureKind.BAD_EDIT,
            f"There is no file {path}, and a child may add {rules.new_files or 'no'} files.",
        )
    return program.added(path, "").focused(path)


def _passages(text: str, parent: Program) -> Iterator[Passage]:
    """Divides a reply at the lines that name a file."""
    lines = text.split("\n")
    known = {file.path for file in parent.files}
    path, start = "", 0
    for number, line in enumerate(lines):
        named = _named(lines, number, known)
        if named and (named != path or _begins_code(lines, number)):
            if any(each.strip() for each in lines[start:number]):
                yield Passage(path, "\n".join(lines[start:number]))
            # A fence that bears the path is code of the file itself.
            path, start = named, number if _FENCE.match(line) else number + 1
    yield Passage(path, "\n".join(lines[start:]))


def _named(lines: list[str], number: int, known: set[str]) -> str:
    """Returns the path that a line names as that of the code below it; "" for another line."""
    line = lines[number]
    fence = _PATH_AFTER_FENCE.match(line)
    if fence is not None:
        return fence[1] if _is_path(fence[1], known) else ""
    match = _ABOUT_A_FILE.match(line)
    if match is None or not _is_path(match["path"], known):
        return ""
    return match["path"] if _begins_code(lines, number) else ""


def _begins_code(lines: list[str], number: int) -> bool:
    """Returns whether code begins on the next line that is not empty."""
    after = next((line for line in lines[number + 1 : number + 3] if line.strip()), "")
    return bool(_FENCE.match(after) or _SEARCH.match(after))


def _is_path(text: str, known: set[str]) -> bool:
    return text in known or ("." in text.strip(".") and not text.startswith(("/", "..")))
