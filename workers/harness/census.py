"""Who is alive in a cell, how much memory they hold, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable

from .room import UIDS, Room, become

_SWEEPS = 200
_PAUSE_SECONDS = 0.002
IN_A_CONTAINER = (
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
)


_LIMITS = {"memory.events": "memory.max", "memory.oom_control": "memory.limit_in_bytes"}


def strangers(room: Room, known: frozenset[int]) -> list[int]:
    """Returns every process of the cell but this one and `known`, zombies included."""
    me = os.getpid()
    if room.own_processes:
        return [pid for pid in _all_pids() if pid != me and pid not in known]
    parents = {pid: parent for pid in _all_pids() if (parent := _parent(pid)) is not None}
    family = {me, *known}
    while True:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        if not more:
            break
        family |= more
    return sorted(family - {me} - known)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None  # it has ended meanwhile


def end_all(
    room: Room, known: frozenset[int], uids: tuple[int, ...], reap: Callable[[], None]
) -> list[int]:
    """Kills every stranger until none is left; returns who would not go.

    Where programs have identities of their own, a helper takes each identity and lets the kernel
    kill all of it at once, which no fork bomb can outrun.  `reap` collects ended children without
    waiting.
    """
    reap()
    alive = strangers(room, known)
    for sweep in range(_SWEEPS):
        if not alive:
            break
        if room.identities == UIDS and sweep % 4 == 0:
            for uid in uids:
                _kill_identity(uid)
        for pid in alive:
            kill(pid)
        reap()
        alive = strangers(room, known)
        if alive:
            time.sleep(_PAUSE_SECONDS if sweep < 50 else 5 * _PAUSE_SECONDS)
            reap()
            alive = strangers(room, known)
    return alive


def abandon(room: Room, *children: int) -> None:
    """Ends this process and all of the cell, because the worker is gone; does not return."""
    if not room.own_processes:  # elsewhere the kernel ends all with the first process
        for pid in children:
            kill(pid)
        end_all(room, frozenset(), (), _reap)
        shutil.rmtree(os.path.dirname(room.work), ignore_errors=True)
    os._exit(0)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def kill(pid: int) -> None:
    # Gone already, or of an identity that the helper takes care of.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_identity(uid: int) -> None:
    helper = os.fork()
    if helper == 0:
        try:
            become(uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(helper, 0)


def as_identity(uid: int, action: Callable[[], None]) -> None:
    """Runs `action` in a child that has become `uid`, and waits for it."""
    helper = os.fork()
    if helper == 0:
        try:
            become(uid)
            action()
        finally:
            os._exit(0)
    os.waitpid(helper, 0)


def resident_bytes(pids: list[int], baseline_bytes: int) -> int:
    """Returns the memory of the given processes, less what each shares with the zygote."""
    private, shared = 0, 0
    for pid in pids:
        anonymous, shmem = _resident(pid)
        private += max(0, anonymous - baseline_bytes)
        shared = max(shared, shmem)
    return private + shared


def own_baseline_bytes() -> int:
    return _resident(os.getpid())[0]


def _resident(pid: int) -> tuple[int, int]:
    sizes = {b"RssAnon:": 0, b"RssShmem:": 0, b"VmRSS:": 0}
    told = False
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                name, _, rest = line.partition(b"\t")
                if name in sizes:
                    sizes[name] = int(rest.split()[0]) << 10
                    told = told or name == b"RssAnon:"
    except (OSError, ValueError, IndexError):
        pass  # it has ended meanwhile
    # gVisor tells all of it in one number.
    return (sizes[b"RssAnon:"] if told else sizes[b"VmRSS:"]), sizes[b"RssShmem:"]


def open_counter(paths: tuple[str, ...], most_bytes: int) -> int:
    """Returns a descriptor of the first counter of a cgroup that limits memory; -1 without one.

    An engine without cgroups, as a rootless one on version 1, shows those of the machine.

    Args:
      paths: Counters to try.
      most_bytes: What the cgroup was asked to hold at most.
    """
    for path in paths:
        folder, name = os.path.split(path)
        try:
            with open(os.path.join(folder, _LIMITS[name])) as file:
                limited = int(file.read()) <= most_bytes
            if limited:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):  # not there, or "max"
            continue
    return -1


def oom_kills(room: Room) -> int:
    """Returns how often the kernel has ended a process of the cell's cgroup; 0 without one."""
    if not room.counted_memory:
        return 0
    for line in os.pread(room.memory_counter, 4096, 0).splitlines():
        name, _, value = line.partition(b" ")
        if name == b"oom_kill":
            return int(value)
    return 0
