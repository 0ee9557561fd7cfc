"""Child processes that end with their parent, and the record by which a later start finds them.

A child is known by its process id *and* the moment it started, so that a number used again by the
machine is never mistaken for it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import psutil

LAUNCHER = Path(__file__).with_name("launch.py")
SAME_START_SECONDS = 2.0
"""Slack between two readings of a start time; the clock may be set in between."""
TAIL_LINES = 12
LOG_BYTES = 10 << 20
"""Largest log; as much of its past is kept beside it."""
OWN_SERVERS = "use servers of your own (EVOQ_DATABASE_URL, EVOQ_REDIS_URL)"
"""The remedy where a server cannot run here."""


class EmbeddedError(RuntimeError):
    """A server or worker of the embedded stack cannot be started here.

    The message says what failed, where, and what to do about it.
    """


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program is ended.

    Attributes:
      orphaned: The signal that the kernel sends when the parent is gone.
      requested: The signal that is sent first; the program ends in order.
      grace_seconds: Time after that signal until the program, with everything it started, is
        killed.
    """

    orphaned: signal.Signals
    requested: signal.Signals
    grace_seconds: float


class Process(Protocol):
    """A process as `subprocess.Popen` and `app.embedded.forks.ForkedProcess` show it."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> object: ...
    def send_signal(self, sig: signal.Signals, /) -> None: ...


class ChildProcess:
    """A program in a session of its own, which Ctrl-C on the terminal therefore does not reach."""

    def __init__(
        self,
        name: str,
        process: Process,
        record: Path,
        ending: Ending,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.name = name
        self._process = process
        self._record = record
        self._ending = ending
        self._clock = clock
        self._requested_at: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def request_end(self) -> None:
        """Sends the signal to end and does not wait, so that several programs share one grace."""
        if self.exit_status is None and self._requested_at is None:
            self._requested_at = self._clock()
            self._process.send_signal(self._ending.requested)

    def stop(self) -> None:
        """Ends the program in order, then kills what is left of its session.  Idempotent."""
        self.request_end()
        waited = 0.0 if self._requested_at is None else self._clock() - self._requested_at
        with contextlib.suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            self._process.wait(max(0.0, self._ending.grace_seconds - waited))
        _kill_session(self._process.pid)
        self._process.wait()
        self._record.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A program to start as a child.

    Attributes:
      name: Its name in messages and in its record.
      command: Its path and its arguments.
      folder: The working directory.
      log: Both outputs of the program are appended to this file.
      record: Where the program's identity is kept until it has ended.
      ending: How the program will be ended.
      environment: None passes on the environment of this process.
      uid: The user to run under, where this process is root; None keeps the current user.
    """

    name: str
    command: Sequence[str]
    folder: Path
    log: Path
    record: Path
    ending: Ending
    environment: Mapping[str, str] | None = None
    uid: int | None = None


def launch(spec: ChildSpec) -> ChildProcess:
    """Starts a program.

    The death signal is tied to the *thread* that calls this function: that thread must live as long
    as the child.

    Raises:
      EmbeddedError: The log or the record cannot be written.
    """
    uid = -1 if spec.uid is None else spec.uid
    numbers = (os.getpid(), int(spec.ending.orphaned), uid)

    def begin(output: int) -> Process:
        return subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(LAUNCHER)),
                *(str(number) for number in numbers),
                *spec.command,
            ],
            cwd=spec.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=spec.environment,
            start_new_session=True,
        )

    return start_child(spec, begin)


def start_child(spec: ChildSpec, begin: Callable[[int], Process]) -> ChildProcess:
    """Starts a program by `begin`, to which it passes the descriptor of the log, and records it.

    Raises:
      EmbeddedError: The log or the record cannot be written.
    """
    with explain_failure(f"start {spec.name} in {spec.folder}"):
        for path in (spec.log, spec.record):
            path.parent.mkdir(parents=True, exist_ok=True)
        with spec.log.open("ab") as output:
            process = begin(output.fileno())
        write_record(spec.record, spec.name, process.pid)
    return ChildProcess(spec.name, process, spec.record, spec.ending)


@contextlib.contextmanager
def explain_failure(action: str) -> Iterator[None]:
    """Raises an `EmbeddedError` with a remedy in place of an error of the system.

    Args:
      action: The block's purpose, after the word "cannot".
    """
    try:
        yield
    except OSError as error:
        raise EmbeddedError(f"cannot {action}: {error}: {remedy(str(error))}") from error


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, distinguished from later processes with the same number."""

    name: str
    pid: int
    started: float

    def running(self) -> psutil.Process | None:
        """Returns the process, or None when it has ended."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < SAME_START_SECONDS
            ended = process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if same and not ended else None


def write_record(record: Path, name: str, pid: int) -> None:
    """Records the identity of process `pid`; a process that has ended already leaves no record."""
    try:
        identity = Identity(name, pid, psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return
    part = record.with_suffix(".part")
    part.write_text(json.dumps(asdict(identity)))
    part.replace(record)


def read_record(record: Path) -> Identity | None:
    """Returns the recorded identity; None when there is no record, or only a part of one."""
    try:
        document = json.loads(record.read_text())
        return Identity(str(document["name"]), int(document["pid"]), float(document["started"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def end_recorded(record: Path, ending: Ending) -> None:
    """Ends a process that an earlier start left behind, and removes its record."""
    identity = read_record(record)
    left_over = identity.running() if identity else None
    if left_over is not None:
        left_over.send_signal(ending.requested)
        deadline = time.monotonic() + ending.grace_seconds
        while identity and identity.running() and time.monotonic() < deadline:
            time.sleep(0.02)
        _kill_session(left_over.pid)
    record.unlink(missing_ok=True)


def _kill_session(leader: int) -> None:
    """Kills every process of a session; they are in one process group unless they left it."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def bound_log(log: Path) -> None:
    """Moves the end of a log above `LOG_BYTES` to a file `.1`, in place of what that file held.

    The log is copied and emptied, not renamed: a program that was given it as its output goes on
    writing to the same file, at its end.  A line that is written meanwhile may be lost, and on a
    full disk the whole log.
    """
    with contextlib.suppress(OSError):
        if log.is_file() and log.stat().st_size > LOG_BYTES:
            try:
                with log.open("rb") as whole, Path(f"{log}.1").open("wb") as past:
                    whole.seek(-LOG_BYTES, os.SEEK_END)
                    shutil.copyfileobj(whole, past)
            finally:
                os.truncate(log, 0)


def tail(log: Path) -> str:
    """Returns the last lines of a log, indented; a note when there are none."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError as error:
        return f"  (no log: {error})"
    return "\n".join(f"  {line}" for line in lines) if lines else "  (the log is empty)"


def remedy(output: str) -> str:
    """Returns the advice for a server's own error message; a general hint where none is known."""
    advice_by_message = (
        ("No space left on device", "free some disk space and start again"),
        ("Disk quota exceeded", "free some of your disk quota and start again"),
        ("Read-only file system", "choose a folder on a writable file system with EVOQ_HOME"),
        ("Not a directory", "choose another folder with EVOQ_HOME"),
        ("Permission denied", "make the folder writable for the user that runs this"),
        ("Address already in use", "end the program that uses this port, or choose another"),
        ("could not look up effective user ID", "run as a user that has an entry in /etc/passwd"),
        ("incompatible with server", "the data was written by another Postgres version: move it"),
        ("cannot allocate memory", "free some memory and start again"),
    )
    for message, advice in advice_by_message:
        if message.lower() in output.lower():
            return advice
    return f"read its log, or {OWN_SERVERS}"
