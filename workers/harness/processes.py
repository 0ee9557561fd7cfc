"""The processes of a sandbox: which are alive, how much memory they use, and how they are ended."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from . import forks
from .sandbox_layout import FORK_FILTER, ONE, UIDS, SandboxLayout, become

_ATTEMPTS = 200
_PAUSE_SECONDS = 0.002
_STOPS = 50
_PARENT, _THREADS = 1, 17
"""Indexes in /proc/PID/stat, counted after the command."""
_WAITED = 1
"""Index in /proc/PID/task/TID/schedstat, after the time used; both are nanoseconds."""
IN_A_CONTAINER = (
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
)


_LIMITS = {"memory.events": "memory.max", "memory.oom_control": "memory.limit_in_bytes"}


def others(layout: SandboxLayout, known: frozenset[int]) -> list[int]:
    """Returns every process of the sandbox but this one and `known`, zombies included."""
    me = os.getpid()
    if layout.own_processes:
        return [pid for pid in _all_pids() if pid != me and pid not in known]
    return sorted(descendants({me, *known}) - known)


def descendants(roots: set[int]) -> set[int]:
    """Returns every process below `roots`, without these, zombies included."""
    return _below(roots, _all_entries())


def tasks(
    layout: SandboxLayout, evaluator_zygote_pid: int, shared: bool, stopped: set[int]
) -> forks.TaskCount:
    """Returns how many processes and threads a trial has now.

    What the evaluator started and then left to itself counts as a program's.

    Args:
      layout: The sandbox's.
      evaluator_zygote_pid: The evaluator's zygote.
      shared: Whether the evaluator's process is the program's, too.
      stopped: Processes of players that are not to move; what is below them counts in total alone.
    """
    entries = _all_entries()
    # A process whose parent ended during the scan is counted: it is usually the trial's.
    cut_off = {
        pid for pid, entry in entries.items() if entry.parent and entry.parent not in entries
    }
    roots = cut_off | {os.getpid()}
    all_of_trial = set(entries) if layout.own_processes else _below(roots, entries) | cut_off
    all_of_trial -= {os.getpid(), evaluator_zygote_pid}
    programs = all_of_trial - (set() if shared else _below({evaluator_zygote_pid}, entries))
    programs -= stopped | _below(stopped, entries)
    return forks.TaskCount(
        sum(entries[pid].threads for pid in programs if pid in entries),
        sum(entries[pid].threads for pid in all_of_trial if pid in entries),
    )


@dataclass(frozen=True)
class _ProcessEntry:
    parent: int
    threads: int


def owners() -> dict[int, int]:
    """Returns the identity of every process in sight."""
    found = {}
    for pid in _all_pids():
        with (
            contextlib.suppress(OSError, IndexError, ValueError),
            open(f"/proc/{pid}/status", "rb") as file,
        ):
            line = next(line for line in file if line.startswith(b"Uid:"))
            found[pid] = int(line.split()[1])
    return found


def _all_entries() -> dict[int, _ProcessEntry]:
    return {pid: entry for pid in _all_pids() if (entry := _entry(pid)) is not None}


def _below(roots: set[int], entries: dict[int, _ProcessEntry]) -> set[int]:
    """Returns all that descend from `roots`, without these."""
    children: dict[int, list[int]] = {}
    for pid, entry in entries.items():
        children.setdefault(entry.parent, []).append(pid)
    below: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in below and pid not in roots:
                below.add(pid)
                waiting.append(pid)
    return below


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _entry(pid: int) -> _ProcessEntry | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return _ProcessEntry(int(fields[_PARENT]), max(1, int(fields[_THREADS])))
    except (OSError, ValueError, IndexError):
        # The process has ended meanwhile.
        return None


def end_all(
    layout: SandboxLayout,
    known: frozenset[int],
    uids: tuple[int, ...],
    reap: Callable[[], object],
    until: float = math.inf,
) -> list[int]:
    """Kills all processes but this one and `known`; returns those that survived.

    It waits for their ends no longer than `until`, in `time.monotonic` seconds: the kernel may take
    seconds to free what a killed process has mapped.

    Where programs have identities of their own, a helper takes each identity and has the kernel
    kill all of its processes at once, which no fork bomb can outrun.  Elsewhere none can fork where
    the zygote answers forks, because it does not any more; and all are stopped before any is killed
    where nothing does: a killed process permits another fork under the limit, and a stopped one
    cannot fork.  `reap` collects ended children without waiting.
    """
    reap()
    alive = others(layout, known)
    if layout.identities == ONE and layout.bounded_by != FORK_FILTER:
        _stop_all(layout, known, alive)
        alive = others(layout, known)
    for attempt in range(_ATTEMPTS):
        if not alive or (attempt and time.monotonic() > until):
            break
        if layout.identities == UIDS and attempt % 4 == 0:
            for uid in uids:
                _kill_identity(uid)
        for pid in alive:
            kill(pid)
        reap()
        alive = others(layout, known)
        if alive:
            time.sleep(_PAUSE_SECONDS if attempt < 50 else 5 * _PAUSE_SECONDS)
            reap()
            alive = others(layout, known)
    return alive


def _stop_all(layout: SandboxLayout, known: frozenset[int], alive: list[int]) -> None:
    stopped: set[int] = set()
    for _ in range(_STOPS):
        running = set(alive) - stopped
        if not running:
            return
        for pid in running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= running
        alive = others(layout, known)


def abandon(layout: SandboxLayout, *children: int) -> None:
    """Ends the whole sandbox, because the worker has gone; does not return."""
    # Elsewhere the kernel ends all with the first process.
    if not layout.own_processes:
        for pid in children:
            kill(pid)
        end_all(layout, frozenset(), (), _reap)
        shutil.rmtree(os.path.dirname(layout.work), ignore_errors=True)
    os._exit(0)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def kill(pid: int) -> None:
    # It has ended, or it has another identity, which `_kill_identity` ends.
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


def give_way(uids: tuple[int, ...]) -> None:
    """Gives every process and thread of the given identities the lowest priority."""
    for uid in uids:
        # The identity may have no process left.
        with contextlib.suppress(OSError):
            # The kernel returns the highest priority of any process, so a new one shows.
            if os.getpriority(os.PRIO_USER, uid) < forks.LOWEST_PRIORITY:
                as_identity(uid, partial(os.setpriority, os.PRIO_USER, uid, forks.LOWEST_PRIORITY))


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


@dataclass(frozen=True)
class ResidentBytes:
    """Memory of several processes.

    Attributes:
      private: With the tables of their pages, and what of it was swapped out.
      shared: That of the process with the most, which is the least that all have together.
    """

    private: int
    shared: int


def resident_bytes(pids: list[int], baseline_bytes: int) -> ResidentBytes:
    """Returns the memory of the given processes, less what each shares with the zygote."""
    private, shared = 0, 0
    for pid in pids:
        own, shmem = _resident(pid)
        private += max(0, own - baseline_bytes)
        shared = max(shared, shmem)
    return ResidentBytes(private, shared)


def own_baseline_bytes() -> int:
    return _resident(os.getpid())[0]


def _resident(pid: int) -> tuple[int, int]:
    sizes = {b"RssAnon:": 0, b"RssShmem:": 0, b"VmRSS:": 0, b"VmPTE:": 0, b"VmSwap:": 0}
    has_anonymous = False
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                name, _, rest = line.partition(b"\t")
                if name in sizes:
                    sizes[name] = int(rest.split()[0]) << 10
                    has_anonymous = has_anonymous or name == b"RssAnon:"
    except (OSError, ValueError, IndexError):
        # The process has ended meanwhile.
        pass
    # gVisor reports all memory in one number.
    private = sizes[b"RssAnon:"] if has_anonymous else sizes[b"VmRSS:"]
    return private + sizes[b"VmPTE:"] + sizes[b"VmSwap:"], sizes[b"RssShmem:"]


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds of one process that has not ended.

    Attributes:
      used: On a processor, of all its threads.
      waited: For which the thread that waited longest could run and did not, also for want of the
        quota of its cgroup.  A thread of lower priority than this process waits by its own doing.
    """

    used: float = 0.0
    waited: float = 0.0


def processor_times(pids: Iterable[int]) -> dict[int, ProcessorTime]:
    """Returns the times of each process.

    A kernel that counts no such time (gVisor's) leaves its processes out.
    """
    times: dict[int, ProcessorTime] = {}
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                    used, waited = (int(text) / 1e9 for text in file.read().split()[: _WAITED + 1])
                if os.getpriority(os.PRIO_PROCESS, int(thread)) > priority:
                    waited = 0.0
                known = times.get(pid, ProcessorTime())
                times[pid] = ProcessorTime(known.used + used, max(known.waited, waited))
    return times


def open_counter(paths: tuple[str, ...], most_bytes: int) -> int:
    """Returns a descriptor of the first counter of a cgroup that limits memory; -1 without one.

    An engine without cgroups, such as a rootless one with version 1, shows those of the machine.

    Args:
      paths: Counters to try.
      most_bytes: The memory limit that was requested.
    """
    for path in paths:
        folder, name = os.path.split(path)
        try:
            with open(os.path.join(folder, _LIMITS[name])) as file:
                limited = int(file.read()) <= most_bytes
            if limited:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            # The file is not there, or reads "max".
            continue
    return -1


def oom_kills(layout: SandboxLayout) -> int:
    """Returns how many processes of the sandbox's cgroup the kernel has ended; 0 without one."""
    if not layout.counted_memory:
        return 0
    for line in os.pread(layout.memory_counter, 4096, 0).splitlines():
        name, _, value = line.partition(b" ")
        if name == b"oom_kill":
            return int(value)
    return 0
