"""Landlock rulesets, which a process applies to itself without privilege and irrevocably.

Where a sandbox has no root directory of its own, a ruleset keeps programs from the machine's files.
  Where evaluator and program share a list of processes, it keeps the program from what
`/proc` says of the other.  From Linux 6.12 on it also holds back signals and abstract sockets.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from . import kernel, sandbox_layout

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1, 2, 4, 8
_FIRST_RIGHTS = (1 << 13) - 1
_REFER, _TRUNCATE, _DEVICE_IOCTL = 1 << 13, 1 << 14, 1 << 15
_TCP = 3
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_VERSION_SCOPES, _VERSION_TCP = 6, 4

_READABLE = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/localtime",
    "/etc/alternatives", "/etc/fonts", "/etc/mime.types", "/etc/os-release", "/etc/protocols",
    "/etc/services", "/etc/timezone", "/etc/ssl", "/etc/passwd", "/etc/group", "/dev/zero",
    "/dev/random",
    "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu",
)  # fmt: skip
_NOT_WHOLE = frozenset({"proc", "tmp", "sandbox", "dev"})
_OF_ALL = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "sys")
_DEVICES = ("zero", "full", "random", "urandom")


def version() -> int:
    """Returns the kernel's Landlock version; 0 where it has none or it is switched off."""
    answer = kernel.libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    return max(0, int(answer))


def has_scopes() -> bool:
    """Returns whether a ruleset also restricts signals and abstract sockets."""
    return version() >= _VERSION_SCOPES


def of_machine() -> tuple[str, ...]:
    """Returns what a program may read where the machine's own root directory is in sight."""
    return (*_READABLE, *_homes(), *sandbox_layout.package_folders())


def of_sandbox(hides_others: bool) -> tuple[str, ...]:
    """Returns what a program may read of a sandbox's own root: all but other processes and places.

    `/proc/self` is that of the process that restricts itself.

    Args:
      hides_others: Whether `/proc` itself shows a program none but its own processes.
    """
    whole = ["/" + name for name in os.listdir("/") if name not in _NOT_WHOLE]
    whole = [path for path in whole if not os.path.islink(path)]
    devices = ["/dev/" + name for name in _DEVICES]
    of_all = ["/proc"] if hides_others else ["/proc/" + name for name in (*_OF_ALL, "self")]
    elsewhere = [
        path for path in (*_homes(), *sandbox_layout.package_folders())
        if not any(path.startswith(top + "/") for top in whole)
    ]  # fmt: skip
    paths = [*whole, *devices, *of_all, *elsewhere]
    return tuple(path for path in paths if os.path.exists(path))


def _homes() -> tuple[str, str, str]:
    return sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))


def scope_sockets() -> None:
    """Keeps this process and all it will start from abstract sockets that others listen on.

    Kernels before 6.12 cannot.
    """
    if has_scopes():
        attributes = struct.pack("=QQQ", 0, 0, _ABSTRACT_SOCKETS)
        restrict(_ruleset(attributes))


def keep_from_devices() -> None:
    """Keeps this process and all it will start from writing to any device but `/dev/null`.

    A shared mapping of `/dev/zero` is memory that no process need have.
    """
    if version():
        ruleset = _ruleset(struct.pack("=Q", _WRITE_FILE))
        places = ["/" + name for name in os.listdir("/") if name != "dev"]
        for path in (*places, "/dev/null", sandbox_layout.SHARED_MEMORY):
            _allow(ruleset, path, _WRITE_FILE)
        restrict(ruleset)


def ruleset_of_paths(readable: tuple[str, ...], writable: tuple[str, ...]) -> int:
    """Returns the descriptor of a ruleset that allows what is given; -1 without Landlock.

    Args:
      readable: Files and directories.
      writable: Directories in which everything but devices may be made.
    """
    known = version()
    if not known:
        return -1
    rights = _FIRST_RIGHTS
    rights |= _REFER if known >= 2 else 0
    rights |= _TRUNCATE if known >= 3 else 0
    rights |= _DEVICE_IOCTL if known >= 5 else 0
    attributes = struct.pack("=Q", rights)
    attributes += struct.pack("=Q", _TCP) if known >= _VERSION_TCP else b""
    scopes = _ABSTRACT_SOCKETS | _SIGNALS
    attributes += struct.pack("=Q", scopes) if known >= _VERSION_SCOPES else b""
    ruleset = _ruleset(attributes)
    for path in readable:
        _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIRECTORY)
    truncate = rights & _TRUNCATE
    _allow(ruleset, "/dev/null", _READ_FILE | _WRITE_FILE | truncate)
    for path in writable:
        _allow(ruleset, path, rights & ~_DEVICE_IOCTL)
    return ruleset


def _ruleset(attributes: bytes) -> int:
    return kernel.check(
        kernel.libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0),
        "landlock_create_ruleset",
    )


def restrict(ruleset: int) -> None:
    """Has this process and all it will start see only what a ruleset allows, and closes it."""
    if ruleset < 0:
        return
    kernel.no_new_privileges()
    kernel.check(kernel.libc.syscall(_RESTRICT, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # This machine does not have the path.
        return
    try:
        if not os.path.isdir(path):
            rights &= _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE
        rule = struct.pack("=Qi", rights, fd)
        kernel.check(
            kernel.libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), "landlock_add_rule"
        )
    finally:
        os.close(fd)
