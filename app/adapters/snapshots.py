"""What a folder holds at one moment, what differs at a later one, and what is not taken from it.

No link is followed: whoever worked in the folder may have put one anywhere.
"""

import errno
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

NO_SOURCES = frozenset(
    (
        *("__pycache__", ".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".evoq"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"),
        *("runs", "checkpoints", "openevolve_output", ".aider.tags.cache.v4"),
    )
)
"""Names of folders that are no part of a problem or a program."""
_TICK_NS = 20_000_000
"""More than the step in which kernels count the times of files: two changes within one step leave
the same times.
"""
_ATTEMPTS = 5
_DEEPEST = 200
_SET_ID = stat.S_ISUID | stat.S_ISGID


class Refused(Exception):
    """A file is not taken; the message says why, without its path."""


@dataclass(frozen=True, slots=True)
class PathState:
    """A file, folder or link.

    A folder's size and times are left out: its entries say what changed in it.

    Attributes:
      target: Of a symbolic link.
      inode: 0 for a folder, as is `changed_ns`.
      changed_ns: When anything of it changed, contents or attributes; no program can set it.
    """

    mode: int
    owner: tuple[int, int]
    size: int
    modified_ns: int
    target: str
    inode: int
    changed_ns: int

    def resembles(self, other: "PathState") -> bool:
        """Returns whether a copy of the file that keeps its times could have the other state."""
        return self.owner == other.owner and self.shows(other)

    def shows(self, other: "PathState") -> bool:
        """Returns whether the file, given to another owner, could have the other state."""
        mine = (self.mode, self.size, self.modified_ns, self.target)
        return mine == (other.mode, other.size, other.modified_ns, other.target)


Snapshot: TypeAlias = Mapping[str, PathState]
"""Entries by path relative to the folder."""


def walk(
    folder: str | os.PathLike[str],
    left_out: Collection[str] = (),
    unreadable: dict[str, OSError] | None = None,
) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yields all that is below a folder by its path in it, a folder before its entries.

    Args:
      folder: The folder.
      left_out: Names of folders that are left out.
      unreadable: Gets the folders that cannot be read, or are nested deeper than 200; None raises
        the error.
    """
    waiting = [(os.fspath(folder), "")]
    while waiting:
        path, prefix = waiting.pop()
        try:
            if prefix.count("/") > _DEEPEST:
                raise OSError(errno.ENAMETOOLONG, f"nested deeper than {_DEEPEST} folders", path)
            with os.scandir(path) as found:
                entries = list(found)
        except OSError as error:
            if unreadable is None:
                raise
            unreadable[prefix] = error
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name in left_out:
                    continue
                waiting.append((entry.path, f"{prefix}{entry.name}/"))
            yield prefix + entry.name, entry


def settled(folder: Path) -> Snapshot:
    """Returns a snapshot that differs from every later one of a changed folder.

    Waits up to a tenth of a second where a file changed within the last tick of the clock, since
    another change in that tick could not be seen.
    """
    for _ in range(_ATTEMPTS):
        began = time.time_ns()
        found = snapshot(folder)
        if all(entry.changed_ns < began - _TICK_NS for entry in found.values()):
            break
        time.sleep(_TICK_NS / 1e9)
    return found


def snapshot(folder: Path) -> Snapshot:
    return _states(walk(folder))


def _states(
    entries: Iterator[tuple[str, "os.DirEntry[str]"]], unreadable: dict[str, OSError] | None = None
) -> dict[str, PathState]:
    found: dict[str, PathState] = {}
    for path, entry in entries:
        try:
            found[path] = _path_state(entry)
        except FileNotFoundError:
            # The entry was removed meanwhile.
            continue
        except OSError as error:
            if unreadable is None:
                raise
            unreadable[path] = error
    return found


def _path_state(entry: "os.DirEntry[str]") -> PathState:
    status = entry.stat(follow_symlinks=False)
    owner = (status.st_uid, status.st_gid)
    if stat.S_ISDIR(status.st_mode):
        return PathState(status.st_mode, owner, 0, 0, "", 0, 0)
    target = os.readlink(entry.path) if stat.S_ISLNK(status.st_mode) else ""
    return PathState(
        status.st_mode,
        owner,
        status.st_size,
        status.st_mtime_ns,
        target,
        status.st_ino,
        status.st_ctime_ns,
    )


def differing(before: Snapshot, after: Snapshot, *, copied: bool = False) -> list[str]:
    """Returns the paths that differ, sorted.

    Args:
      before: An earlier snapshot.
      after: A later one.
      copied: Whether a commit lies between, which gives every file another inode.
    """

    def same(path: str) -> bool:
        first, second = before.get(path), after.get(path)
        if first is None or second is None:
            return False
        return first.resembles(second) if copied else first == second

    return sorted(path for path in before.keys() | after.keys() if not same(path))


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs in a folder in which a command has worked.

    Attributes:
      changed: Paths that are new or another than before, folders left out; sorted.
      removed: Paths of files that are not there any more; sorted.
      refused: Path to why nothing may be taken from it: a folder that cannot be read, a link that
        leads out of the folder, a name that cannot be printed, or what is no regular file.
    """

    changed: tuple[str, ...]
    removed: tuple[str, ...]
    refused: Mapping[str, str]


def changes(folder: Path, before: Snapshot, left_out: Collection[str] = ()) -> Changes:
    """Returns what a command left in a folder; the owners of files do not count.

    Args:
      folder: The folder; the command may have removed it, or put a link in its place.
      before: Its entries at the start.
      left_out: Names of folders whose changes are left out.
    """
    unreadable: dict[str, OSError] = {}
    there = folder.is_dir() and not folder.is_symlink()
    after = _states(walk(folder, left_out, unreadable), unreadable) if there else {}
    refused = {path: error.strerror or "cannot be read" for path, error in unreadable.items()}
    changed = []
    for path, state in after.items():
        earlier = before.get(path)
        if earlier is not None and earlier.shows(state):
            continue
        if not path.rpartition("/")[2].isprintable():
            refused[ascii(path)] = "its name has characters that are not printable"
        elif reason := _suspect(folder, path, state):
            refused[path] = reason
        elif not stat.S_ISDIR(state.mode):
            changed.append(path)
    gone = (path for path in before.keys() - after.keys() if not stat.S_ISDIR(before[path].mode))
    removed = () if unreadable else tuple(sorted(gone))
    return Changes(tuple(sorted(changed)), removed, refused)


def _suspect(folder: Path, path: str, state: PathState) -> str:
    """Returns why a new entry may not be taken; "" if it may."""
    if state.mode & _SET_ID and not stat.S_ISDIR(state.mode):
        return "it would run with the rights of its owner"
    if stat.S_ISLNK(state.mode):
        led, inside = os.path.realpath(folder / path), os.path.realpath(folder)
        if os.path.isabs(state.target) or os.path.commonpath((led, inside)) != inside:
            return f"the link leads out of the folder, to {state.target!a:.200}"
        return ""
    if stat.S_ISREG(state.mode) or stat.S_ISDIR(state.mode):
        return ""
    return "no regular file"


def read_own(path: Path, most_bytes: int) -> bytes:
    """Returns the contents of a regular file that has one name.

    Raises:
      Refused: It is none, or longer.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        raise Refused("no regular file") from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise Refused("no regular file of its own")
        if status.st_size > most_bytes:
            raise Refused(f"longer than {most_bytes} bytes")
        return file.read(most_bytes + 1)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files at their paths below a folder, in place where they exist."""
    for path, contents in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(contents)
