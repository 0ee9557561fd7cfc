"""State of this machine beside the ledger: results folders of runs, and locks of commands."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from app.client.notes import CommandError
from app.config.layers import UsageError

WORK_LOCK = "work.lock"
"""Held, shared, by commands that work on runs."""
UP_LOCK = "up.lock"
"""Held by `evoq up`."""
RESULTS = Path("runs")
RESULT_FILES = (
    *("best_program.*", "best_program", "best.patch", "best.json"),
    *("metrics.jsonl", "metrics.csv", "settings.json"),
    *("evolution.png", "failures.png", "archive.png", "generations.png"),
)
"""Patterns of the files that `app.reports.folder` writes."""


@dataclass(frozen=True, slots=True)
class LocalState:
    """How a run was started on this machine.

    Attributes:
      out: Folder of its results.
    """

    out: str


def write_local_state(home: Path, run: str, state: LocalState) -> None:
    """Stores how a run was started."""
    path = _path(home, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(state)))


def read_local_state(home: Path, run: str) -> LocalState:
    """Returns how a run was started; the defaults for a run started on another machine."""
    try:
        return LocalState(**json.loads(_path(home, run).read_text()))
    except (OSError, ValueError, TypeError):
        return LocalState(str(RESULTS / run))


def require_writable(folder: Path) -> Path:
    """Creates a folder if it is absent, and returns it once a file could be written into it.

    Raises:
      CommandError: It cannot be created or written to.
    """
    probe = folder / ".evoq-can-write"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CommandError(
            f"{folder}: the output folder cannot be written to ({error.strerror}). Give another "
            f"one with --out, or change its permissions"
        ) from error
    return folder


def require_own(folder: Path, where: str, *, run: str = "", problem: str = "") -> Path:
    """Returns a folder that holds no results, or only those of this run.

    Args:
      folder: Where results are to be written.
      where: The option that names it, for the message.
      run: Name of a run that exists; "" for a new one, which has no results yet.
      problem: Digest of its problem.

    Raises:
      UsageError: It holds files of another run or of someone else, which would be overwritten.
    """
    there = sorted(path.name for pattern in RESULT_FILES for path in folder.glob(pattern))
    if not there or (run and _owner(folder) == (run, problem)):
        return folder
    raise UsageError(
        "the folder has files that the results would overwrite",
        where=where,
        value=f"{folder}: {', '.join(there)}",
        remedy="Name another folder, or move these files away.",
    )


def _owner(folder: Path) -> tuple[str, str] | None:
    """Returns the run, and the digest of its problem, whose settings lie in a folder."""
    try:
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        return settings["run"], settings["problem"]["digest"]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def is_worked_on(home: Path) -> bool:
    """Returns whether some command works on runs of an embedded folder now."""
    return _held(home / WORK_LOCK, fcntl.LOCK_EX)


@contextmanager
def work_lock(home: Path) -> Iterator[bool]:
    """Holds the lock of commands that work on runs of an embedded folder.

    Yields:
      Whether no other command holds the lock now.
    """
    with _lock_file(home, WORK_LOCK) as lock:
        alone = _try_lock(lock, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield alone


@contextmanager
def run_lock(home: Path, run: str) -> Iterator[None]:
    """Holds the lock of a run that one process alone works on.

    Raises:
      CommandError: Another process holds it.
    """
    (home / "runs").mkdir(parents=True, exist_ok=True)
    with _lock_file(home, _lock_of(run)) as lock:
        if not _try_lock(lock, fcntl.LOCK_EX):
            raise CommandError(
                f"another command works on {run}, which is --reproducible: wait until it ends, or "
                f"end it with `evoq pause {run}`"
            )
        yield


def is_held(home: Path, run: str) -> bool:
    """Returns whether a process holds the lock of a run."""
    return _held(home / _lock_of(run), fcntl.LOCK_SH)


@contextmanager
def up_lock(home: Path) -> Iterator[None]:
    """Holds the lock of the folder's `evoq up`.

    Raises:
      CommandError: Another `evoq up` holds it.
    """
    with _lock_file(home, UP_LOCK) as lock:
        if not _try_lock(lock, fcntl.LOCK_EX):
            raise CommandError(f"`evoq up` is running in {home} already")
        yield


def is_up(home: Path) -> bool:
    """Returns whether `evoq up` keeps the folder's stack running."""
    return _held(home / UP_LOCK, fcntl.LOCK_SH)


@contextmanager
def _lock_file(home: Path, name: str) -> Iterator[IO[str]]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / name).open("a")
    except OSError as error:
        raise CommandError(
            f"{home}: cannot be written to ({error.strerror}). Set EVOQ_HOME to another folder"
        ) from error
    with lock:
        yield lock


def _held(path: Path, kind: int) -> bool:
    """Returns whether some process holds a lock with which one of this kind is incompatible."""
    if not path.exists():
        return False
    with path.open("r") as lock:
        return not _try_lock(lock, kind)


def _lock_of(run: str) -> str:
    return f"runs/{run}.lock"


def _try_lock(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _path(home: Path, run: str) -> Path:
    return home / "runs" / f"{run}.json"
