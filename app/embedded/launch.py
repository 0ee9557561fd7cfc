"""Runs a program that ends with its parent, under another user where a user id is given.

    python -I -S launch.py PARENT_PID DEATH_SIGNAL UID PROGRAM ARGUMENT...

A script of its own that needs the standard library only, because all of this must happen in the
child: the death signal is lost when the user changes, so it is set last, and `preexec_fn` is not
safe in a program with threads.  A UID of -1 keeps the user.  Where the kernel knows no death signal
(macOS) none is set, and the next start of the stack ends the processes that are left.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
ARGUMENTS = 4


def main(arguments: list[str]) -> None:
    """Replaces this process by the program; returns only by an exception."""
    parent, death_signal, uid = (int(text) for text in arguments[: ARGUMENTS - 1])
    command = arguments[ARGUMENTS - 1 :]
    if uid >= 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    if sys.platform == "linux":
        end_with_parent(parent, death_signal)
    os.execv(command[0], command)


def end_with_parent(parent: int, death_signal: int) -> None:
    """Has the kernel send this process a signal when its parent ends; exits if it has ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("the parent ended before its child began")


if __name__ == "__main__":
    main(sys.argv[1:])
