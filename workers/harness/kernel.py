"""The Linux calls that Python 3.11 does not wrap: prctl, capabilities, namespaces, mounts."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import socket
import struct

NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT = 1, 2, 4, 8, 32
BIND, REC, PRIVATE = 4096, 16384, 1 << 18
DETACH = 2

CAP_KILL, CAP_SETGID, CAP_SETUID = 5, 6, 7
_SYS_ADMIN = 21
_LAST_CAPABILITY = 63

_PDEATHSIG, _DUMPABLE, _BOUNDING_DROP, _NO_NEW_PRIVS, _SUBREAPER = 1, 4, 24, 38, 36
_AMBIENT, _AMBIENT_CLEAR = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

libc = ctypes.CDLL(None, use_errno=True)
_LINKS_OF_ONE_THREAD = 3
"""A folder of threads has its own link, its parent's, and one for each thread."""
_interpreter = ctypes.PyDLL(None, use_errno=True)
"""Keeps the interpreter's lock during a call."""


def check(result: int, what: str) -> int:
    """Returns `result` of a C call, or raises OSError from errno if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int, third: int = 0) -> None:
    check(libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), 0, 0), f"prctl {option}")


def fork() -> int:
    """Forks this process, whose child must seed its generators itself.

    `os.fork` also renews locks in the child, which copies 150 pages and is of use only where
    another thread may have held them: it is called where there is one.
    """
    alone = os.stat("/proc/self/task").st_nlink == _LINKS_OF_ONE_THREAD
    return check(_interpreter.fork(), "fork") if alone else os.fork()


def no_new_privileges() -> None:
    prctl(_NO_NEW_PRIVS, 1)


def hide_memory() -> None:
    """Refuses ptrace and /proc/PID/mem to processes of the same identity."""
    prctl(_DUMPABLE, 0)


def show_memory() -> None:
    """Undoes `hide_memory`, which a write to our own /proc/self/uid_map and measuring need."""
    prctl(_DUMPABLE, 1)


def file_user(uid: int) -> None:
    """Makes `uid` and its group the identity with which this thread opens files."""
    libc.setfsgid(uid)
    libc.setfsuid(uid)


def adopt_orphans() -> None:
    """Makes this process the parent of every orphan below it."""
    prctl(_SUBREAPER, 1)


def die_with_parent(signal_number: int = 9) -> None:
    """Asks for a signal when the parent ends; forgotten at every change of identity."""
    prctl(_PDEATHSIG, signal_number)


def unshare(flags: int) -> None:
    check(libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    check(
        libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()),
        f"mount {kind or source} on {target}",
    )


def unmount(target: str) -> None:
    check(libc.umount2(target.encode(), DETACH), f"unmount {target}")


def may_mount() -> bool:
    """Returns whether this process has the right to mount (CAP_SYS_ADMIN)."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) & 1 << _SYS_ADMIN)


def mount_points() -> list[str]:
    """Returns where this process sees something mounted, in the order of the mounting."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        points = [line.split(" ", 5)[4] for line in lines]
    return [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), at) for at in points]


def pivot_root(new: str, old: str) -> None:
    number = {"x86_64": 155, "aarch64": 41}.get(os.uname().machine)
    if number is None:
        raise OSError(38, "pivot_root is not known on this machine")
    check(libc.syscall(number, new.encode(), old.encode()), "pivot_root")


def keep_capabilities(*kept: int) -> None:
    """Gives up every capability but `kept`, for this process and all it will start."""
    for number in range(_LAST_CAPABILITY + 1):
        if number not in kept:
            try:
                prctl(_BOUNDING_DROP, number)
            except OSError:
                # This kernel lacks the capability, or the right to drop it is missing.
                break
    # Kernels before 4.3 have no ambient set.
    with contextlib.suppress(OSError):
        prctl(_AMBIENT, _AMBIENT_CLEAR)
    low = sum(1 << number for number in kept)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    sets = struct.pack("=6I", low, low, 0, 0, 0, 0)
    check(libc.capset(header, sets), "capset")


def bring_loopback_up() -> None:
    """A fresh network namespace has its loopback interface down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(plug, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(plug, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))
