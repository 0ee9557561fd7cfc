"""Bounds the processes of a trial where the kernel's limit cannot: the zygote answers every fork.

A program installs a filter under which each call that makes a process or thread waits for an answer
(seccomp user notification, Linux 5.5 and later).  The zygote holds the filter's listener.
Once the listener is closed, every such call fails in all descendants of the program, whatever
session they are in, so that the set of processes to end cannot grow.  Calls of `file_modes` are
answered in the same way.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from . import file_modes, kernel

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_MAKING = {"x86_64": (56, 57, 58, 435), "aarch64": (220, 435)}
"""Numbers of clone, fork, vfork and clone3, as far as the machine has them."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ASK, _KILL = 0x7FFF0000, 0x7FC00000, 0x80000000
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 8, 32

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_REQUEST = struct.Struct("=QIIiIQ6Q")
"""Its number, the process, flags, then the call: its number, machine, place and arguments."""
_ANSWER = struct.Struct("=QqiI")
"""The request's number, a value, an error, flags."""
_GO_ON = 1

_CROWD = 4
"""A task that asks for another when there are as many has the lowest priority from then on: else a
program that forks all it may has 64 times the share of the zygote, which has to end it."""
LOWEST_PRIORITY = 19
_PAUSE_SECONDS = 0.02
"""Between two counts.  It also slows down a program that forks in spite of refusals."""
_PROBING_SECONDS = 5.0


@dataclass(frozen=True)
class TaskCount:
    """Processes and threads of a trial.

    Attributes:
      programs: Of its programs.
      total: Of its programs and of its evaluator.
    """

    programs: int
    total: int


class ForkFilter:
    """The filter, compiled once in the zygote and installed in each process of a trial.

    Args:
      others: Numbers of further system calls that wait for an answer.
    """

    def __init__(self, others: Iterable[int] = ()) -> None:
        machine = os.uname().machine
        self._number = _SECCOMP.get(machine, -1)
        making = (*_MAKING.get(machine, ()), *others)
        lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _AUDIT_ARCH.get(machine, 0))]
        lines += [(_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
        for index, number in enumerate(making):
            lines.append((_EQUAL, len(making) - index, 0, number))
        lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
        packed = b"".join(struct.pack("=HBBI", *line) for line in lines)
        self._buffer = ctypes.create_string_buffer(packed)
        self._program = struct.pack("@HP", len(lines), ctypes.addressof(self._buffer))

    def install(self) -> int:
        """Installs the filter, which child processes inherit, and returns its listener.

        Raises:
          OSError: The kernel has no such filters, or the process already has one with a listener.
        """
        if self._number < 0:
            raise OSError(errno.ENOSYS, "the system calls of this machine are not known")
        kernel.no_new_privileges()
        for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
            # Before Linux 5.19 a signal restarts a waiting call, which is then counted twice.
            listener: int = kernel.libc.syscall(self._number, _SET_FILTER, flags, self._program)
            if listener >= 0 or ctypes.get_errno() != errno.EINVAL:
                break
        return kernel.check(listener, "seccomp listener")

    def install_for(self, channel: socket.socket) -> None:
        """Installs the filter and sends its listener over `channel`; this process keeps none."""
        listener = self.install()
        socket.send_fds(channel, [b"."], [listener])
        os.close(listener)


def installation(
    fork_filter: ForkFilter | None, channel: socket.socket | None
) -> Callable[[], None]:
    """Returns a function that installs the filter for `channel`, if there is a filter."""
    if fork_filter is None or channel is None:
        return _no_filter
    return partial(fork_filter.install_for, channel)


def _no_filter() -> None:
    pass


class ForkGate:
    """Answers the forks of one trial; used by the zygote alone.

    A fork is granted from what the last count left.  When nothing is left, it waits for the next
    count, and is then granted or refused (EAGAIN, as the kernel's own limit does).

    Args:
      count: Counts the trial's tasks.
      of_programs: Most tasks of programs.
      of_all: Most tasks of programs and evaluator; the evaluator's forks are held to this.
    """

    def __init__(self, count: Callable[[], TaskCount], of_programs: int, of_all: int) -> None:
        self._count = count
        self._most = TaskCount(of_programs, of_all)
        self._left = TaskCount(0, 0)
        self._counted = -_PAUSE_SECONDS
        self._places: dict[int, tuple[str, ...]] = {}
        self._waiting: list[tuple[int, int, int]] = []

    def admit(self, listener: int, places: tuple[str, ...]) -> None:
        """Takes over a listener, and closes it at the end.

        Args:
          listener: Of a program or of the evaluator.
          places: Directories that the program may change; none for the evaluator.
        """
        self._places[listener] = places

    def listens(self, fd: int) -> bool:
        return fd in self._places

    @property
    def pause_seconds(self) -> float | None:
        """Seconds until `answer` should be called again; None if no fork waits."""
        return _PAUSE_SECONDS if self._waiting else None

    def receive(self, listener: int) -> None:
        """Receives one request, and grants a fork if a count has left room for it."""
        request = bytearray(_REQUEST.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, request)
        except OSError:
            # The calling process has ended.
            return
        number, pid, _, call, _, _, *arguments = _REQUEST.unpack(request)
        places = self._places[listener]
        if call in file_modes.CALLS and places:
            _send(listener, number, -file_modes.change(pid, call, tuple(arguments), places), 0)
        elif call in file_modes.CALLS:
            _send(listener, number, 0, _GO_ON)
        elif not self._granted(listener, number, pid):
            self._waiting.append((listener, number, pid))

    def answer(self) -> None:
        """Answers the waiting forks, if it is time for another count."""
        now = time.monotonic()
        if not self._waiting or now < self._counted + _PAUSE_SECONDS:
            return
        self._counted = now
        count = self._count()
        self._left = TaskCount(self._most.programs - count.programs, self._most.total - count.total)
        waiting, self._waiting = self._waiting, []
        for listener, number, task in waiting:
            if not self._granted(listener, number, task):
                self._give_way(task)
                _send(listener, number, -errno.EAGAIN, 0)

    def _granted(self, listener: int, number: int, task: int) -> bool:
        evaluators = not self._places[listener]
        if (self._left.total if evaluators else self._left.programs) <= 0:
            return False
        self._give_way(task)
        self._left = TaskCount(self._left.programs - (not evaluators), self._left.total - 1)
        _send(listener, number, 0, _GO_ON)
        return True

    def _give_way(self, task: int) -> None:
        """Lowers the priority of a task that asks for another in a crowd."""
        if self._most.total - self._left.total >= _CROWD:
            # The task may have ended, or have another identity.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, task, LOWEST_PRIORITY)

    def forget(self, listener: int) -> None:
        """Closes a listener whose processes have all ended."""
        del self._places[listener]
        self._waiting = [request for request in self._waiting if request[0] != listener]
        os.close(listener)

    def close(self) -> None:
        """Makes every fork of the trial fail from now on, including those that wait."""
        for listener in list(self._places):
            self.forget(listener)


def _send(listener: int, number: int, error: int, flags: int) -> None:
    # The calling process may have ended.
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, error, flags))


def works(fork_filter: ForkFilter) -> bool:
    """Returns whether a fork is refused here, by trying it in a child process."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        os._exit(_try_to_fork(fork_filter, theirs))
    theirs.close()
    with ours:
        ours.settimeout(_PROBING_SECONDS)
        try:
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        except OSError:
            fds = []
        if fds:
            gate = ForkGate(lambda: TaskCount(1, 1), 1, 1)
            gate.admit(fds[0], ("/",))
            poll = select.poll()
            poll.register(fds[0], select.POLLIN)
            if poll.poll(_PROBING_SECONDS * 1000):
                gate.receive(fds[0])
                gate.answer()
            gate.close()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _try_to_fork(fork_filter: ForkFilter, channel: socket.socket) -> int:
    """Returns 0 if a fork was refused as the gate refuses it."""
    try:
        fork_filter.install_for(channel)
        channel.close()
        if os.fork() == 0:
            os._exit(0)
    except OSError as error:
        return 0 if error.errno == errno.EAGAIN else 1
    return 1
