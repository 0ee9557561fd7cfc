"""Changes the modes of a program's own files where the program has the worker's identity.

Landlock keeps a program from what is in other files, and not from their modes, which the owner of a
file may change wherever it is.  Without an identity of its own, a program's calls therefore wait
for an answer of the zygote, as its forks do, which changes modes in the program's directory alone.
"""

from __future__ import annotations

import errno
import os

_CHMOD, _FCHMOD, _FCHMODAT = "chmod", "fchmod", "fchmodat"
_CALLS = {
    "x86_64": {90: _CHMOD, 91: _FCHMOD, 268: _FCHMODAT},
    "aarch64": {52: _FCHMOD, 53: _FCHMODAT},
}
_OF_THIS_MACHINE = _CALLS.get(os.uname().machine, {})
CALLS = frozenset(_OF_THIS_MACHINE)
"""Numbers of the system calls that `change` answers."""

_WORKING_DIRECTORY = -100
_PATH_BYTES = 4096
_BITS = 0o777


def change(pid: int, call: int, arguments: tuple[int, ...], places: tuple[str, ...]) -> int:
    """Does what a process asked for with one of `CALLS`; returns 0, or the number of the error.

    Args:
      pid: The process, or a thread of it.
      call: Number of the system call.
      arguments: Those of the call.
      places: The directories in which modes may be changed, and their own.
    """
    try:
        fd = os.open(_path(pid, call, arguments), os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        return error.errno or errno.EPERM
    mode = arguments[2 if _OF_THIS_MACHINE[call] == _FCHMODAT else 1]
    link = f"/proc/self/fd/{fd}"
    try:
        found = os.readlink(link)
        if not any((found + "/").startswith(os.path.realpath(place) + "/") for place in places):
            return errno.EPERM
        os.chmod(link, mode & _BITS)
    except OSError as error:
        return error.errno or errno.EPERM
    finally:
        os.close(fd)
    return 0


def _path(pid: int, call: int, arguments: tuple[int, ...]) -> bytes:
    """Returns where this process finds the file; what is there meanwhile is checked afterwards."""
    kind, folder = _OF_THIS_MACHINE[call], b"/proc/%d" % pid
    if kind == _FCHMOD:
        return folder + b"/fd/%d" % _signed(arguments[0])
    start, at = (folder + b"/cwd", arguments[0])
    if kind == _FCHMODAT:
        number, at = _signed(arguments[0]), arguments[1]
        start = start if number == _WORKING_DIRECTORY else folder + b"/fd/%d" % number
    memory = os.open(folder + b"/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        path = os.pread(memory, _PATH_BYTES, at).partition(b"\0")[0]
    finally:
        os.close(memory)
    if not path:
        raise FileNotFoundError(errno.ENOENT, "an empty path")
    return os.path.join(start, path)


def _signed(argument: int) -> int:
    """Returns a register's lower half as the number that it is."""
    low = argument & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low
