"""Tests which limits are in force in a sandbox, so that it reports no other."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import signal
import stat
from collections.abc import Callable, Iterable
from functools import partial

from . import forks, kernel, limits, user_namespaces
from .sandbox_layout import FORK_FILTER, LIMIT, NESTED, UIDS, SandboxLayout, become

_MEMORY_MIB, _CPU_SECONDS, _FILE_BYTES, _OPEN_FILES = 512, 7, 1, 64
_BOUNDS = {
    "cpu_seconds": _CPU_SECONDS,
    "memory_mib": _MEMORY_MIB,
    "file_bytes": _FILE_BYTES,
    "open_files": _OPEN_FILES,
}


def bound_of_processes(layout: SandboxLayout, fork_filter: forks.ForkFilter) -> str:
    """Returns what bounds the processes of a program: `LIMIT`, `FORK_FILTER`, or "" for nothing."""
    identity = _identity(layout)
    if identity is not None and _in_a_child(partial(_limit_counts_its_own, identity)):
        return LIMIT
    return FORK_FILTER if forks.works(fork_filter) else ""


def limits_hold(layout: SandboxLayout) -> bool:
    """Returns whether limits of CPU time, memory, files and descriptors hold for a program."""
    path = os.path.join(layout.library, ".probe")
    try:
        return _in_a_child(partial(_limits_refuse, path))
    finally:
        if os.path.exists(path):
            os.unlink(path)


def openable(sockets: Iterable[str], layout: SandboxLayout, *, as_itself: bool) -> str:
    """Returns the first of some socket files that the evaluator can open; "" if it can open none.

    Args:
      sockets: Their paths.
      layout: The sandbox's.
      as_itself: Whether the evaluator can have the identity of this process.
    """
    uid = None if as_itself or layout.identities != UIDS else layout.first_uid
    return next((path for path in sockets if _in_a_child(partial(_may_open, path, uid))), "")


def _may_open(path: str, uid: int | None) -> bool:
    if uid is not None:
        become(uid)
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.W_OK)
    except OSError:
        return False


def _identity(layout: SandboxLayout) -> Callable[[], None] | None:
    """Returns a function that takes an identity that the kernel counts separately, or None."""
    if layout.identities == UIDS:
        return partial(become, layout.uid_of(0))
    return in_a_namespace if layout.identities == NESTED else None


def in_a_namespace() -> None:
    """Enters a user namespace, whose processes Linux counts apart since 5.14."""
    uid, gid = os.getuid(), os.getgid()
    kernel.show_memory()
    kernel.unshare(kernel.NEWUSER)
    user_namespaces.map_identity(user_namespaces.INSIDE_ID, uid, gid)


def _limit_counts_its_own(identity: Callable[[], None]) -> bool:
    """Returns whether RLIMIT_NPROC counts a program's processes, all of them and no others.

    It counts others where the identity is not the program's own, as in a user namespace before
    Linux 5.14; and it does not hold for root, nor for an unprivileged namespace of root.
    """
    identity()
    return _forks_within(2) and not _forks_within(1)


def _forks_within(processes: int) -> bool:
    ceiling = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, ceiling))
    try:
        child = os.fork()
    except BlockingIOError:
        return False
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


def _limits_refuse(path: str) -> bool:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits.apply(_BOUNDS, 0)
    refused = (
        _fails(errno.EFBIG, partial(_write, path)),
        _fails(errno.EMFILE, _open_many),
        _fails(errno.ENOMEM, _map_memory),
        resource.getrlimit(resource.RLIMIT_CPU)[1] <= _CPU_SECONDS + 1,
    )
    return all(refused)


def _fails(number: int, action: Callable[[], None]) -> bool:
    try:
        action()
    except OSError as error:
        return error.errno == number
    return False


def _write(path: str) -> None:
    with open(path, "wb", buffering=0) as file:
        for _ in range(2):
            file.write(b"x" * _FILE_BYTES)


def _open_many() -> None:
    for _ in range(_OPEN_FILES):
        os.dup(0)


def _map_memory() -> None:
    mmap.mmap(-1, 2 * _MEMORY_MIB << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _in_a_child(question: Callable[[], bool]) -> bool:
    """Returns the answer of a child process; False if it fails."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if question() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
