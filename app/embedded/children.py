"""Child processes that end with us, and the record by which a later start finds the rest.

A child is known by its process id *and* the moment it started, so that a number used again by the
machine is never mistaken for it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from app.embedded.errors import EmbeddedError, remedy

LAUNCHER = Path(__file__).with_name("launch.py")
SAME_START_SECONDS = 2.0
"""Slack between two readings of a start time; the clock may be set in between."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program is asked to end.

    Attributes:
      orphaned: Sent by the kernel when the parent is gone.
      asked: Sent first; the program ends in order.
      grace_seconds: After it was asked; then it, and whatever it started, is killed.
    """

    orphaned: signal.Signals
    asked: signal.Signals
    grace_seconds: float


class ChildProcess:
    """A program in a session of its own, so that Ctrl-C reaches us and not it."""

    def __init__(
        self,
        name: str,
        process: "subprocess.Popen[bytes]",
        record: Path,
        ending: Ending,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.name = name
        self._process = process
        self._record = record
        self._ending = ending
        self._clock = clock
        self._asked_at: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def ask(self) -> None:
        """Asks it to end and does not wait, so that several may end at once, in one grace."""
        if self.exit_status is None and self._asked_at is None:
            self._asked_at = self._clock()
            self._process.send_signal(self._ending.asked)

    def stop(self) -> None:
        """Asks it to end, waits, and kills what is left of its session.  Idempotent."""
        self.ask()
        waited = 0.0 if self._asked_at is None else self._clock() - self._asked_at
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, self._ending.grace_seconds - waited))
        _kill_session(self._process.pid)
        self._process.wait()
        self._record.unlink(missing_ok=True)


def launch(
    name: str,
    command: Sequence[str],
    *,
    folder: Path,
    log: Path,
    record: Path,
    ending: Ending,
    uid: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> ChildProcess:
    """Starts a program.

    The death signal is tied to the *thread* that calls this: it must live as long as the child.

    Args:
      name: What it is called in messages and in its record.
      command: The program's path and its arguments.
      folder: Its working directory.
      log: Gets both its outputs, appended.
      record: Where its identity is kept until it has ended.
      ending: How it will be asked to end.
      uid: The user to become, when we are root; None keeps ours.
      environment: None passes on ours.

    Raises:
      EmbeddedError: The log or the record cannot be written.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        record.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(LAUNCHER)),
                    *(str(os.getpid()), str(int(ending.orphaned)), str(-1 if uid is None else uid)),
                    *command,
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        write_record(record, name, process.pid)
    except OSError as error:
        raise EmbeddedError(
            f"cannot start {name} in {folder}: {error}: {remedy(str(error))}"
        ) from error
    return ChildProcess(name, process, record, ending)


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, told apart from later ones with its number."""

    name: str
    pid: int
    started: float

    def running(self) -> psutil.Process | None:
        """Returns the process, or None when it has ended."""
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started) < SAME_START_SECONDS
            ended = found.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return found if same and not ended else None


def write_record(record: Path, name: str, pid: int) -> None:
    """Writes down who `pid` is; a process that has ended already leaves no record."""
    try:
        identity = Identity(name, pid, psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return
    part = record.with_suffix(".part")
    part.write_text(json.dumps(asdict(identity)))
    part.replace(record)


def read_record(record: Path) -> Identity | None:
    """Returns who is recorded, or None when nobody is, or the record was cut short."""
    try:
        found = json.loads(record.read_text())
        return Identity(str(found["name"]), int(found["pid"]), float(found["started"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def end_recorded(record: Path, ending: Ending) -> bool:
    """Ends what an earlier start left behind.

    Returns:
      Whether there was anything to end.
    """
    identity = read_record(record)
    left = identity.running() if identity else None
    if left is not None:
        left.send_signal(ending.asked)
        deadline = time.monotonic() + ending.grace_seconds
        while identity and identity.running() and time.monotonic() < deadline:
            time.sleep(0.02)
        _kill_session(left.pid)
    record.unlink(missing_ok=True)
    return left is not None


def _kill_session(leader: int) -> None:
    """Kills every process of a session; they are in one process group unless they left it."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
