"""Memory cgroups for sandboxes that are child processes, where this user may make them."""

import contextlib
import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "evoq"
_NUMBERS = itertools.count()
_EMPTYING_SECONDS = 2.0
_START_TIME_FIELD = 19
"""Index in /proc/PID/stat, counted after the command's closing parenthesis."""
_V1_LIMIT, _V2_LIMIT, _V2_SWAP = "memory.limit_in_bytes", "memory.max", "memory.swap.max"
_COUNTERS = {_V1_LIMIT: "memory.oom_control", _V2_LIMIT: "memory.events"}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The memory cgroup of one sandbox.

    Attributes:
      folder: Its directory.
      counter: The file in which the kernel counts what it ended here for want of memory.
    """

    folder: Path
    counter: Path

    def take(self, pid: int) -> None:
        """Moves a process in; what it starts from now on is in it, too.

        Raises:
          OSError: The process has ended, or may not be moved.
        """
        (self.folder / "cgroup.procs").write_text(str(pid))

    def starved(self) -> bool:
        """Returns whether the kernel has ended a process of this cgroup for want of memory."""
        try:
            lines = self.counter.read_text().splitlines()
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)

    def remove(self) -> None:
        """Removes the cgroup once it is empty; a later worker removes it if that takes too long."""
        until = time.monotonic() + _EMPTYING_SECONDS
        while True:
            try:
                self.folder.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > until:
                    return
            time.sleep(0.01)


def parent() -> Path | None:
    """Returns where this process may make memory cgroups; None where it may not.

    With cgroup v2 that is its own cgroup, or the one around it: a cgroup that holds processes hands
    no memory on to those inside it.
    """
    try:
        own, second = _own(Path("/proc/self/cgroup"), Path("/proc/self/mountinfo"))
    except (OSError, LookupError):
        return None
    for folder in (own, own.parent) if second else (own,):
        if _serves(folder, second):
            return folder
    return None


def _own(groups: Path, mounts: Path) -> tuple[Path, bool]:
    """Returns the directory of this process's memory cgroup, and whether it is of version 2.

    Raises:
      LookupError: There is none, or it lies outside what is mounted.
    """
    paths: dict[str, str] = {}
    for line in groups.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    for second in (False, True):
        for line in mounts.read_text().splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            root, point = before.split()[3:5]
            fits = kind == "cgroup2" if second else kind == "cgroup" and "memory" in options
            own = paths.get("" if second else "memory")
            if not fits or own is None:
                continue
            if not own.startswith(root):
                raise LookupError(f"the cgroup {own} lies outside {root}")
            folder = Path(point) / own.removeprefix(root).lstrip("/")
            if not second or "memory" in (folder / "cgroup.controllers").read_text().split():
                return folder, second
    raise LookupError("no memory cgroup")


def _serves(folder: Path, second: bool) -> bool:
    """Returns whether cgroups with a memory limit can be made in a folder, by making one."""
    if second:
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text("+memory")
    try:
        made = make(folder, 1 << 30)
    except OSError:
        return False
    made.remove()
    return True


def make(folder: Path, memory_bytes: int) -> Cgroup:
    """Returns a new cgroup.

    Raises:
      OSError: This user may not, or the folder's cgroups hold no memory.
    """
    path = folder / f"{_PREFIX}-{os.getpid()}-{start_time(os.getpid())}-{next(_NUMBERS)}"
    path.mkdir()
    try:
        limit = next(name for name in _COUNTERS if (path / name).exists())
        (path / limit).write_text(str(memory_bytes))
        if (path / _V2_SWAP).exists():
            (path / _V2_SWAP).write_text("0")
        return Cgroup(path, path / _COUNTERS[limit])
    except (OSError, StopIteration) as error:
        path.rmdir()
        raise OSError(f"{folder} gives no memory cgroup: {error}") from error


def remove_empty(folder: Path) -> None:
    """Removes the empty cgroups of workers that have ended."""
    for path in folder.glob(f"{_PREFIX}-*-*-*"):
        _, pid, began, _ = path.name.split("-")
        if start_time(int(pid)) != began:
            with contextlib.suppress(OSError):
                path.rmdir()


def start_time(pid: int) -> str:
    """Returns when a process was started, in the kernel's ticks; "" if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_TIME_FIELD]
