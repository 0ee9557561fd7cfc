"""What a folder holds at one moment, as far as the file system says without reading contents."""

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

_TICK_NS = 20_000_000
"""More than the step in which kernels count the times of files: two changes within one step leave
the same times.
"""
_ATTEMPTS = 5


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
        mine = (self.mode, self.owner, self.size, self.modified_ns, self.target)
        return mine == (other.mode, other.owner, other.size, other.modified_ns, other.target)


Snapshot: TypeAlias = Mapping[str, PathState]
"""Entries by path relative to the folder."""


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
    found: dict[str, PathState] = {}
    waiting = [(str(folder), "")]
    while waiting:
        path, prefix = waiting.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found[prefix + entry.name] = _path_state(entry)
                except FileNotFoundError:
                    # The entry was removed meanwhile.
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{prefix}{entry.name}/"))
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
