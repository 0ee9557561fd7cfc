"""Where a cell lives: its directories, its identities, and which walls stand around it.

Three kinds of identity, strongest first: `UIDS`, a throw-away user for every program; `NESTED`,
namespaces of its own for every program, for a user without privileges; `ONE`, nothing but a
separate OS process with limits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from dataclasses import dataclass

from . import kernel

UIDS, NESTED, ONE = "uids", "nested", "one"

INSIDE_ID = 1000  # not 0: a namespace inside may map root only with a capability we give up
EVALUATOR_DIRECTORY_MODE = {"guarded": 0o770, "compatible": 0o775}
_SIGNALLED = 128  # added to a signal's number to tell of it by an exit status, as shells do
_FIRST_UID, _UIDS_NEEDED = 10_000, 4_000
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@dataclass
class Room:
    """The walls and places of one cell.

    Attributes:
      evaluator: Directory of the evaluator's files.
      work: Directory of one subdirectory a trial.
      rpc: Directory of the sockets between evaluator and program.
      library: Directory on `sys.path` with the stub's modules.
      shared_places: Directories everybody in the cell can write, emptied after each trial.
      identities: `UIDS`, `NESTED` or `ONE`.
      own_processes: Whether no process outside the cell is visible in it.
      own_root: Whether only the interpreter, system libraries and the cell's files are visible.
      network_closed: Whether there is no interface but loopback.
      memory_counter: Descriptor of where the kernel counts what it ended in the cell's cgroup for
        want of memory; -1 where no cgroup holds the cell, and it is weighed instead.
      first_uid: The evaluator's; programs take the following ones in turn.
      uid_count: How many throw-away identities there are.
      kept: What was in the shared places from the beginning, such as an interpreter under /tmp.
      reasons: What was tried and refused, one line each.
    """

    evaluator: str
    work: str
    rpc: str
    library: str
    shared_places: tuple[str, ...]
    identities: str
    own_processes: bool
    own_root: bool
    network_closed: bool
    memory_counter: int = -1
    first_uid: int = 0
    uid_count: int = 0
    kept: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()

    @property
    def counted_memory(self) -> bool:
        """Whether a cgroup holds the cell as a whole."""
        return self.memory_counter >= 0

    def uid_of(self, number: int) -> int:
        """Returns the identity of the cell's `number`-th program, counted from 0."""
        return self.first_uid + 1 + number % (self.uid_count - 1) if self.uid_count else os.getuid()


def in_container(memory_counter: int) -> Room:
    """Returns the room of a hardened container, where the engine has put up the walls."""
    first, count = uid_range(0)
    return Room(
        evaluator="/cell/eval/files", work="/cell/work", rpc="/cell/rpc",
        library="/cell/eval/library", shared_places=("/tmp", "/dev/shm", "/dev/mqueue"),
        identities=UIDS, own_processes=True, own_root=True, network_closed=True,
        memory_counter=memory_counter, first_uid=first, uid_count=count,
    )  # fmt: skip


def uid_range(offset: int) -> tuple[int, int]:
    """Returns the first of this cell's identities and how many there are.

    Args:
      offset: Keeps cells of one machine apart; ignored where few identities are mapped.
    """
    try:
        with open("/proc/self/uid_map") as file:
            mapped = max(int(start) + int(count) for start, _, count in map(str.split, file))
    except (OSError, ValueError):
        mapped = 65_536
    first = 1_000_000 + (offset % 200_000) * _UIDS_NEEDED
    if first + _UIDS_NEEDED > mapped:
        first = _FIRST_UID
    return first, _UIDS_NEEDED


def become(uid: int) -> None:
    """Takes the identity of `uid` and its own group, irrevocably."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def make_places(room: Room, mode: str) -> None:
    """Makes the directories of the cell, each for those who may use it."""
    old = os.umask(0)
    try:
        for path in (room.evaluator, room.work, room.rpc, room.library):
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        for path, bits in ((room.work, 0o711), (room.rpc, 0o711), (room.library, 0o755)):
            os.makedirs(path, mode=bits, exist_ok=True)
            os.chmod(path, bits)
        room.kept = frozenset(
            os.path.join(place, name)
            for place in room.shared_places
            if os.path.isdir(place)
            for name in os.listdir(place)
        )
        with group(room, room.first_uid):
            os.mkdir(room.evaluator, EVALUATOR_DIRECTORY_MODE[mode])
    finally:
        os.umask(old)


class group:  # reads as a verb where it is used: `with group(room, uid)`
    """Files made inside the block belong to the group of `uid`, where the cell has groups."""

    def __init__(self, room: Room, uid: int) -> None:
        self._uid = uid if room.identities == UIDS else None

    def __enter__(self) -> None:
        if self._uid is not None:
            os.setegid(self._uid)

    def __exit__(self, *exception: object) -> None:
        if self._uid is not None:
            os.setegid(0)


def enter_nested(
    hidden: tuple[str, ...], read_only: tuple[str, ...], shared_places: tuple[str, ...]
) -> None:
    """Goes on as the first process of new namespaces, without any capability; the caller waits.

    Args:
      hidden: Directories that are empty from here on.
      read_only: Directories that cannot be changed from here on.
      shared_places: Directories that are fresh from here on.
    """
    uid, gid = os.getuid(), os.getgid()
    kernel.show_memory()
    kernel.unshare(kernel.NEWUSER | kernel.NEWPID | kernel.NEWNS | kernel.NEWIPC)
    map_identity(INSIDE_ID, uid, gid)
    inner = os.fork()
    if inner:
        wait_in_place_of(inner)
    kernel.die_with_parent()
    kernel.mount("none", "/", flags=kernel.REC | kernel.PRIVATE)
    for path in hidden:
        kernel.mount("tmpfs", path, "tmpfs", kernel.RDONLY, "size=4k,mode=755")
    for path in read_only:
        kernel.mount(path, path, flags=kernel.BIND)
        flags = kernel.REMOUNT | kernel.BIND | kernel.RDONLY | kernel.NOSUID | kernel.NODEV
        kernel.mount("none", path, flags=flags)
    for path in shared_places:
        kernel.mount("tmpfs", path, "tmpfs", kernel.NOSUID | kernel.NODEV, "size=64m,mode=1777")
    kernel.mount("proc", "/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    kernel.keep_capabilities()
    # The first process of a namespace is deaf to most signals, so the program is the second.
    program = os.fork()
    if program:
        wait_in_place_of(program, as_number=True)
    kernel.die_with_parent()


def map_identity(inside: int, uid: int, gid: int) -> None:
    """Maps one user and one group of a new user namespace to those we had outside."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {uid} 1"),
        ("gid_map", f"{inside} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def wait_in_place_of(child: int, as_number: bool = False, scratch: str = "") -> None:
    """Holds no descriptor, waits for `child` and ends as it ended; does not return.

    Args:
      child: Process to wait for; others that end are collected.
      as_number: Whether a signal becomes an exit status, for one that signals cannot end.
      scratch: A directory to remove afterwards, should the worker not live to do it.
    """
    if not scratch:  # the outermost stays to remove it, and must survive the thread that began it
        kernel.die_with_parent()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, 1 << 16)
    ended, status = 0, 1 << 8
    while ended != child:
        try:
            ended, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        except ChildProcessError:
            break
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)
    signal_number, exit_status = status & 0x7F, status >> 8
    if as_number:
        os._exit(_SIGNALLED + signal_number if signal_number else exit_status)
    if exit_status > _SIGNALLED:
        signal_number = exit_status - _SIGNALLED
    if signal_number:
        with contextlib.suppress(OSError, ValueError):  # SIGKILL keeps its meaning
            signal.signal(signal_number, signal.SIG_DFL)
        with contextlib.suppress(OSError):  # an exit status that is no signal's number
            os.kill(os.getpid(), signal_number)
    os._exit(exit_status)


def package_folders() -> list[str]:
    """Returns the folders of installed packages, also those another environment lends."""
    return [path for path in sys.path if os.path.basename(path) in _PACKAGE_FOLDERS]


def forget_foreign_paths() -> None:
    """Leaves on `sys.path` only the interpreter's and installed packages: no checkout."""
    homes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    packages = package_folders()
    sys.path[:] = [
        path
        for path in sys.path
        if path in packages
        or (path and any(path.startswith(home.rstrip("/") + "/") for home in homes))
    ]
