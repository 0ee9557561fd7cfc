"""Runs a function in a process of its own, which ends with everything that it started.

A supervisor, forked for each function, adopts every process whose parent has ended, so none can
leave it.  It ends them all when the function has returned, when it is asked to, and when the
process of the pattern has ended.
"""

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from app.patterns.errors import ProcessBranchError
from workers.harness import kernel, limits, processes
from workers.harness.sandbox_layout import ONE, SandboxLayout

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
_MOST_RESULT_BYTES = 1 << 20
_TRIES, _PAUSE_SECONDS = 20, 0.001
_HERE = SandboxLayout("", "", "", "", (), ONE, False, False, False)
"""To the harness, the processes below this one are a sandbox without any wall."""


class Running(Protocol):
    """A function at work elsewhere."""

    @property
    def pid(self) -> int:
        """The process below which all of its processes are."""
        ...

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the function has ended."""
        ...

    def result(self) -> Any:
        """Returns what the function returned, as JSON holds it, once it has ended.

        Raises:
          ProcessBranchError: It raised, or its process ended without a result.
        """
        ...

    def request_end(self) -> None:
        """Asks for the end of all its processes and does not wait."""
        ...

    def close(self) -> None:
        """Waits until no process of it is left."""
        ...


class Runner(Protocol):
    """Where candidates run."""

    def start(self, function: Callable[[], Any]) -> Running: ...


class ProcessRunner:
    """Runs functions in forks of this process: they see its memory as it is at the start."""

    def start(self, function: Callable[[], Any]) -> Running:
        """Starts a function.

        Raises:
          ProcessBranchError: The machine gives no process.
        """
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        written = os.memfd_create("result")
        parent = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    _supervise(function, written, parent, before)
                finally:
                    os._exit(1)
        except OSError as error:
            os.close(written)
            raise ProcessBranchError(f"no process can be started: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _Supervised(pid, written)


class _Supervised:
    """A function whose supervisor is a child of this process."""

    def __init__(self, pid: int, written: int) -> None:
        self._pid, self._written = pid, written
        self._handle = os.pidfd_open(pid)
        self._ended = False

    @property
    def pid(self) -> int:
        return self._pid

    def fileno(self) -> int:
        return self._handle

    def result(self) -> Any:
        self._wait()
        size = os.fstat(self._written).st_size
        if size > _MOST_RESULT_BYTES:
            raise ProcessBranchError(f"a result of {size} bytes; the most is {_MOST_RESULT_BYTES}")
        try:
            document = json.loads(os.pread(self._written, size, 0))
        except ValueError:
            raise ProcessBranchError("its process ended without a result") from None
        if "raised" in document:
            error = ProcessBranchError(document["raised"])
            error.add_note(document["traceback"])
            raise error
        return document["returned"]

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


def _supervise(function: Callable[[], Any], written: int, parent: int, mask: Iterable[int]) -> None:
    """Runs in the supervisor; does not return."""
    kernel.adopt_orphans()
    kernel.die_with_parent(signal.SIGTERM)
    child = os.fork()
    if child == 0:
        try:
            _work(function, written, mask)
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


def _work(function: Callable[[], Any], written: int, mask: Iterable[int]) -> None:
    """Runs the function in the process it is given."""
    os.setsid()
    limits.default_signals()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        document = json.dumps({"returned": function()})
    except BaseException as error:
        # The pattern's process receives every exception, whatever its class.
        message = str(error)
        name = type(error).__name__
        document = json.dumps(
            {
                "raised": f"{name}: {message}" if message else name,
                "traceback": traceback.format_exc(),
            }
        )
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    with open(written, "wb", closefd=False) as result:
        result.write(document.encode())
