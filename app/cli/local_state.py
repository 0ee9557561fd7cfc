"""What this machine remembers of a run beside the ledger, and who is at work here."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from app.cli.faults import Failed

WORK = "work.lock"
"""Held by whoever has runs worked on: shared with workers, alone by a reproducible run."""
UP = "up.lock"
"""Held by `evoq up`."""
ATTEMPTS = 10
RESULTS = Path("runs")


@dataclass(frozen=True, slots=True)
class Memory:
    """How a run was started here.

    Attributes:
      out: Folder of its files.
      reproducible: Whether it runs in one process.
    """

    out: str
    reproducible: bool = False


def remember(home: Path, run: str, memory: Memory) -> None:
    """Writes down how a run was started."""
    path = _path(home, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(memory)))


def recall(home: Path, run: str) -> Memory:
    """Returns how a run was started; of one that was started elsewhere, the defaults."""
    try:
        return Memory(**json.loads(_path(home, run).read_text()))
    except (OSError, ValueError, TypeError):
        return Memory(str(RESULTS / run))


def writable(folder: Path, option: str = "--out") -> Path:
    """Makes a folder and returns it, once a file could be written into it.

    Raises:
      Failed: It cannot be made or written to.
    """
    probe = folder / ".evoq-can-write"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Failed(
            f"{folder}: the output folder cannot be written to ({error.strerror}). Give another "
            f"one with {option}, or change its permissions"
        ) from error
    return folder


@contextmanager
def at_work(home: Path, *, alone: bool) -> Iterator[bool]:
    """Marks this process as one that has runs of the embedded folder worked on, while it lives.

    Args:
      home: The embedded folder.
      alone: Whether nobody else may be at work meanwhile.

    Yields:
      Whether nobody else is at work now.

    Raises:
      Failed: Somebody else is, and one of the two needs to be alone.
    """
    with _file(home, WORK) as lock:
        for _ in range(ATTEMPTS):
            if _taken(lock, fcntl.LOCK_EX):
                if not alone:
                    fcntl.flock(lock, fcntl.LOCK_SH)
                yield True
                return
            if not alone and _taken(lock, fcntl.LOCK_SH):
                yield False
                return
            time.sleep(0.1)
        raise Failed(
            f"other runs are going on in {home}, and a --reproducible run must be alone: wait for "
            f"them to end, or set EVOQ_HOME to another folder"
        )


@contextmanager
def kept_up(home: Path) -> Iterator[None]:
    """Marks this process as the folder's `evoq up`.

    Raises:
      Failed: There is another one.
    """
    with _file(home, UP) as lock:
        if not _taken(lock, fcntl.LOCK_EX):
            raise Failed(f"`evoq up` is running in {home} already")
        yield


def is_up(home: Path) -> bool:
    """Returns whether `evoq up` keeps the folder's stack running."""
    if not (home / UP).exists():
        return False
    with (home / UP).open("r") as lock:
        return not _taken(lock, fcntl.LOCK_SH)


@contextmanager
def _file(home: Path, name: str) -> Iterator[IO[str]]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / name).open("a")
    except OSError as error:
        raise Failed(
            f"{home}: cannot be written to ({error.strerror}). Set EVOQ_HOME to another folder"
        ) from error
    with lock:
        yield lock


def _taken(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _path(home: Path, run: str) -> Path:
    return home / "runs" / f"{run}.json"
