"""State of this machine beside the ledger: results folders of runs, and locks of commands."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from app.cli.output import CommandError

WORK_LOCK = "work.lock"
"""Held by commands that work on runs: shared, or exclusively by a reproducible run."""
UP_LOCK = "up.lock"
"""Held by `evoq up`."""
ATTEMPTS = 10
RESULTS = Path("runs")
RESULT_FILES = (
    *("best_program.*", "best.json", "metrics.jsonl", "metrics.csv", "settings.json"),
    *("evolution.png", "failures.png", "archive.png", "generations.png"),
)
"""Patterns of the files that `app.reports.folder` writes."""


@dataclass(frozen=True, slots=True)
class LocalState:
    """How a run was started on this machine.

    Attributes:
      out: Folder of its results.
      reproducible: Whether it runs in a single process.
    """

    out: str
    reproducible: bool = False


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
    from app.config.layers import UsageError

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
    if not (home / WORK_LOCK).exists():
        return False
    with (home / WORK_LOCK).open("r") as lock:
        return not _taken(lock, fcntl.LOCK_EX)


@contextmanager
def work_lock(home: Path, *, alone: bool) -> Iterator[bool]:
    """Holds the lock of commands that work on runs of an embedded folder.

    Args:
      home: The embedded folder.
      alone: Whether no other command may hold the lock meanwhile.

    Yields:
      Whether no other command holds the lock now.

    Raises:
      CommandError: Another command holds it, and one of the two must be alone.
    """
    with _lock_file(home, WORK_LOCK) as lock:
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
        if alone and is_up(home):
            raise CommandError(
                f"`evoq up` is on in {home}, and its workers would take steps of a --reproducible "
                f"run, which must be alone: end `evoq up`, or set EVOQ_HOME to another folder"
            )
        raise CommandError(
            f"other runs are going on in {home}, and a --reproducible run must be alone: wait for "
            f"them to end, or set EVOQ_HOME to another folder"
        )


@contextmanager
def up_lock(home: Path) -> Iterator[None]:
    """Holds the lock of the folder's `evoq up`.

    Raises:
      CommandError: Another `evoq up` holds it.
    """
    with _lock_file(home, UP_LOCK) as lock:
        if not _taken(lock, fcntl.LOCK_EX):
            raise CommandError(f"`evoq up` is running in {home} already")
        yield


def is_up(home: Path) -> bool:
    """Returns whether `evoq up` keeps the folder's stack running."""
    if not (home / UP_LOCK).exists():
        return False
    with (home / UP_LOCK).open("r") as lock:
        return not _taken(lock, fcntl.LOCK_SH)


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


def _taken(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _path(home: Path, run: str) -> Path:
    return home / "runs" / f"{run}.json"
