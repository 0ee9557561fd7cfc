"""Where candidates run: the port, and forks of this process.

A supervisor, forked for each candidate, adopts every process whose parent has ended, so none can
leave it.  It ends them all when the candidate has returned, when it is asked to, and when the
process of the pattern has ended.
"""

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from app.patterns.commands import RunCommand, run_here
from app.patterns.errors import ProcessBranchError
from app.patterns.outcomes import Answer
from app.patterns.work import Work, perform, read_answer
from workers.harness import kernel, limits, processes
from workers.harness.sandbox_layout import ONE, SandboxLayout

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
_MOST_RESULT_BYTES = 1 << 20
_TRIES, _PAUSE_SECONDS = 20, 0.001
_HERE = SandboxLayout("", "", "", "", (), ONE, False, False, False)
"""To the harness, the processes below this one are a sandbox without any wall."""


class Running(Protocol):
    """Work that has been started somewhere."""

    @property
    def pid(self) -> int | None:
        """The process of this machine below which all of its processes are; None elsewhere."""
        ...

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the work has ended."""
        ...

    def result(self) -> Answer:
        """Returns the answer once the work has ended.

        Raises:
          ProcessBranchError: It raised, or ended without an answer.
        """
        ...

    def request_end(self) -> None:
        """Asks for the end of all its processes and does not wait."""
        ...

    def close(self) -> None:
        """Waits until no process of it is left, and frees what it holds.  Is called once."""
        ...


class Runner(Protocol):
    """Where candidates run.

    A pattern calls it in its own process and one thread.  `start` does not wait for the work.
    Work whose `is_data` holds is commands, folders and seconds, and can be written as JSON; other
    work is callables, for forks or `cloudpickle`.  On another machine `perform` does the work, and
    `read_answer` reads its document here; `Work.budget` does not go there.  What one candidate may
    use (memory, processes, an image) belongs to the runner's constructor.
    """

    def start(self, work: Work) -> Running:
        """Starts work.

        Raises:
          ProcessBranchError: It cannot be started; the candidate fails with this error.
        """
        ...


class ProcessRunner:
    """Runs work in forks of this process: they see its memory as it is at the start."""

    def __init__(self, run: RunCommand = run_here) -> None:
        """Sets how commands are run in the forks."""
        self._run = run

    def start(self, work: Work) -> Running:
        """Starts work.

        Raises:
          ProcessBranchError: The machine gives no process.
        """
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with tempfile.TemporaryFile() as file:
            written = os.dup(file.fileno())
        parent = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    _supervise(partial(perform, work, self._run), written, parent, before)
                finally:
                    os._exit(1)
        except OSError as error:
            os.close(written)
            raise ProcessBranchError(f"no process can be started: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _Supervised(pid, written)


class _Supervised:
    """Work whose supervisor is a child of this process."""

    def __init__(self, pid: int, written: int) -> None:
        self._pid, self._written = pid, written
        self._handle = os.pidfd_open(pid)
        self._ended = False

    @property
    def pid(self) -> int:
        return self._pid

    def fileno(self) -> int:
        return self._handle

    def result(self) -> Answer:
        self._wait()
        size = os.fstat(self._written).st_size
        if size > _MOST_RESULT_BYTES:
            raise ProcessBranchError(f"a result of {size} bytes; the most is {_MOST_RESULT_BYTES}")
        return read_answer(os.pread(self._written, size, 0))

    def request_end(self) -> None:
        if not self._ended:
            os.kill(self._pid, signal.SIGTERM)

    def close(self) -> None:
        self._wait()
        for descriptor in (self._handle, self._written):
            os.close(descriptor)

    def _wait(self) -> None:
        if not self._ended:
            os.waitpid(self._pid, 0)
            self._ended = True


def _supervise(document: Callable[[], str], written: int, parent: int, mask: Iterable[int]) -> None:
    """Runs in the supervisor; does not return."""
    kernel.adopt_orphans()
    kernel.die_with_parent(signal.SIGTERM)
    child = os.fork()
    if child == 0:
        try:
            _write(document, written, mask)
        finally:
            os._exit(0)
    while os.getppid() == parent:
        # A stopped or continued child also sends SIGCHLD, and so does an orphan that ended.
        if signal.sigwait(_SIGNALS) != signal.SIGCHLD or _has_ended(child):
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    _end_all()
    os._exit(0)


def _has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_all() -> None:
    """Ends every process below this one."""
    # Most of the processes have just been killed as one group, and end soon.
    for _ in range(_TRIES):
        if _reap():
            return
        time.sleep(_PAUSE_SECONDS)
    processes.end_all(_HERE, frozenset(), (), _reap)


def _reap() -> bool:
    """Collects children that have ended; returns whether none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return True
    return False


def _write(document: Callable[[], str], written: int, mask: Iterable[int]) -> None:
    """Does the work in the process it is given, and writes its document."""
    os.setsid()
    limits.default_signals()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    text = document()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    with open(written, "wb", closefd=False) as result:
        result.write(text.encode())
