"""User namespaces: isolation of each program where the worker has no privileges."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal

from . import kernel

INSIDE_ID = 1000
"""Not 0: a namespace inside may map root only with a capability that is given up."""
_SIGNALLED = 128
"""Added to a signal's number in an exit status, as shells do."""


def enter_namespaces(
    writable: tuple[str, ...],
    hidden: tuple[str, ...],
    read_only: tuple[str, ...],
    shared_places: tuple[str, ...],
    kept: frozenset[str],
) -> None:
    """Continues in new namespaces, without any capability; the calling process waits.

    Args:
      writable: Directories that stay writable.
      hidden: Directories that become empty.
      read_only: Directories that become read-only, but for those that are writable.
      shared_places: Directories that are replaced by new ones.
      kept: Paths there that stay visible and become read-only.
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
    own = [(path, os.open(path, os.O_PATH)) for path in writable]
    for path in read_only:
        kernel.mount(path, path, flags=kernel.BIND)
        flags = kernel.REMOUNT | kernel.BIND | kernel.RDONLY | kernel.NOSUID | kernel.NODEV
        kernel.mount("none", path, flags=flags)
    for path, fd in own:
        kernel.mount(f"/proc/self/fd/{fd}", path, flags=kernel.BIND)
        os.close(fd)
    for path in hidden:
        kernel.mount("tmpfs", path, "tmpfs", kernel.RDONLY, "size=4k,mode=755")
    for path in shared_places:
        _refresh(path, [item for item in kept if os.path.dirname(item) == path])
    kernel.mount("proc", "/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    kernel.keep_capabilities()
    # The first process of a namespace ignores most signals, so the program is the second.
    program = os.fork()
    if program:
        wait_in_place_of(program, as_number=True)
    kernel.die_with_parent()


def _refresh(place: str, kept: list[str]) -> None:
    """Mounts an empty directory over `place` and shows again what was there from the beginning."""
    found = [(path, os.open(path, os.O_PATH | os.O_NOFOLLOW)) for path in kept]
    kernel.mount(
        "tmpfs", place, "tmpfs", kernel.NOSUID | kernel.NODEV, "size=64m,nr_inodes=8k,mode=1777"
    )
    for path, fd in found:
        behind = f"/proc/self/fd/{fd}"
        if os.path.isdir(behind):
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        kernel.mount(behind, path, flags=kernel.BIND | kernel.REC)
        # A user namespace may not clear the flags the machine has set, so they are repeated.
        flags = os.statvfs(path).f_flag & (kernel.NODEV | kernel.NOEXEC | kernel.NOSUID)
        kernel.mount("none", path, flags=kernel.REMOUNT | kernel.BIND | kernel.RDONLY | flags)
        os.close(fd)


def map_identity(inside: int, uid: int, gid: int) -> None:
    """Maps one user and one group of a new user namespace to those outside."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {uid} 1"),
        ("gid_map", f"{inside} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def wait_in_place_of(child: int, as_number: bool = False, scratch: str = "") -> None:
    """Waits for `child` without any descriptor and ends as it ended; does not return.

    Args:
      child: Process to wait for; others that end are collected.
      as_number: Whether a signal becomes an exit status, for a process that ignores signals.
      scratch: A directory to remove afterwards, in case the worker has been killed.
    """
    # Only the outermost process removes `scratch`; it must survive the thread that began it.
    if not scratch:
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
        # The action of SIGKILL cannot change.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(signal_number, signal.SIG_DFL)
        # The exit status may be no signal's number.
        with contextlib.suppress(OSError):
            os.kill(os.getpid(), signal_number)
    os._exit(exit_status)
