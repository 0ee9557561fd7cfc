"""The embedded stack as its clients see it: endpoints for as long as they hold it."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.embedded.errors import EmbeddedError, remedy, tail
from app.embedded.ipc import Line
from app.embedded.worker_set import Flower, WorkerSet, surroundings

START_SECONDS = 120.0
"""Long, because Postgres may replay its log first, or a keeper of before may still be ending."""
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a stack's servers are.

    Attributes:
      database_url: `postgresql+psycopg://…?host=/socket/folder`; holds the password.
      redis_url: `unix:///path?db=0`, as redis-py and `EVOQ_REDIS_URL` take it.
    """

    database_url: str
    redis_url: str


def _unprepared(database_url: str) -> None:
    """Leaves the database as it is."""


class EmbeddedStack:
    """Postgres, Valkey and Celery workers for one folder, shared by all who use that folder.

    The first client starts it, a later one joins it, and it ends with the last; also when that one
    is killed.  Not for several threads.
    """

    def __init__(
        self,
        root: Path,
        prepare: Callable[[str], None] = _unprepared,
        *,
        crew: WorkerSet | None = None,
        environment: Mapping[str, str] | None = None,
        flower: Flower | None = None,
    ):
        """Starts nothing.

        Args:
          root: The folder of all data and logs, `.evoq`; made if absent.
          prepare: Called with the database's URL before any worker starts, by one client at a
            time: it brings the schema up to date.
          crew: None chooses by the number of cores.
          environment: What workers see; None is ours.  Those of a joined stack keep the one they
            were started with.
          flower: None runs none.
        """
        self._root = root.absolute()
        self._prepare = prepare
        self._crew = crew or WorkerSet.of(os.cpu_count() or 1)
        self._environment = dict(os.environ if environment is None else environment)
        self._flower = flower
        self._line: Line | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self, *, workers: bool = True) -> Endpoints:
        """Joins the folder's stack, or starts one.

        Args:
          workers: False for a client that only reads.

        Raises:
          EmbeddedError: It cannot run here; says what failed, where, and the remedy.
        """
        self._line, self._keeper = _join(self._root)
        try:
            found = _told(self._line.hear(START_SECONDS), self._root)
            endpoints = Endpoints(found["database_url"], found["redis_url"])
            with _alone(self._root / "prepare.lock"):
                self._prepare(endpoints.database_url)
            if workers or self._flower:
                self._line.say(
                    {
                        "crew": asdict(self._crew) if workers else None,
                        "flower": asdict(self._flower) if self._flower else None,
                        "environment": self._environment,
                    }
                )
                _told(self._line.hear(START_SECONDS), self._root)
        except BaseException:
            self.stop()
            raise
        return endpoints

    def check(self) -> None:
        """Raises when the stack can no longer be relied on; returns at once otherwise.

        Raises:
          EmbeddedError: A server or worker cannot be kept running, or the keeper has ended.
        """
        if self._line is None:
            raise EmbeddedError(f"the stack of {self._root} has not been started")
        try:
            _told(self._line.hear(0.0), self._root)
        except (TimeoutError, BlockingIOError):
            return

    def stop(self) -> None:
        """Leaves; the last to leave waits until every process has ended.  Idempotent."""
        if self._line is None:
            return
        line, self._line = self._line, None
        try:
            line.say({"leave": True})
            while line.hear(STOP_SECONDS) is not None:
                pass
        except TimeoutError as error:
            raise EmbeddedError(
                f"the stack of {self._root} has not ended after {STOP_SECONDS:.0f} s: "
                f"see {_log(self._root)}; the next start ends what is left"
            ) from error
        except OSError:
            return  # the keeper has gone before us
        finally:
            line.close()
            _part(self._keeper)

    def __enter__(self) -> Endpoints:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def attach(root: Path) -> Endpoints | None:
    """Returns the endpoints of a stack that somebody else keeps running; None when nobody does."""
    connection = _connect(root.absolute())
    if connection is None:
        return None
    line = Line(connection)
    try:
        found = _told(line.hear(START_SECONDS), root)
        return Endpoints(found["database_url"], found["redis_url"])
    finally:
        line.close()


def _join(root: Path) -> "tuple[Line, subprocess.Popen[bytes] | None]":
    """Connects to the keeper of a folder, starting one if there is none.

    Returns:
      The line to it, and its process where we started it.
    """
    deadline = time.monotonic() + START_SECONDS
    keeper: subprocess.Popen[bytes] | None = None
    while time.monotonic() < deadline:
        connection = _connect(root)
        if connection is not None:
            return Line(connection), keeper
        if keeper is None:
            keeper = _start_keeper(root)
        elif keeper.poll() is not None:
            if keeper.returncode != 0:
                said = tail(_log(root))
                raise EmbeddedError(
                    f"the keeper of {root} ended with status {keeper.returncode} ({_log(root)}):\n"
                    f"{said}\n{remedy(said)}"
                )
            keeper = None  # another keeper was there, starting or ending
        time.sleep(POLL_SECONDS)
    raise EmbeddedError(
        f"the stack of {root} does not answer after {START_SECONDS:.0f} s: see {_log(root)}"
    )


def _connect(root: Path) -> socket.socket | None:
    try:
        path = json.loads((root / "keeper.json").read_text())["socket"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise EmbeddedError(
            f"{root} belongs to another user ({error}): choose another folder with EVOQ_HOME"
        ) from error
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def _start_keeper(root: Path) -> "subprocess.Popen[bytes]":
    try:
        _log(root).parent.mkdir(parents=True, exist_ok=True)
        with _log(root).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "app.embedded.supervisor", str(root)],
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=surroundings(os.environ),
                start_new_session=True,
            )
    except OSError as error:
        raise EmbeddedError(
            f"cannot keep a stack in {root}: {error}: {remedy(str(error))}"
        ) from error


def _part(keeper: "subprocess.Popen[bytes] | None") -> None:
    """Takes leave of a keeper we started: it has ended, or serves others and outlives us."""
    if keeper is None:
        return
    try:
        keeper.wait(1.0)
    except subprocess.TimeoutExpired:
        keeper.returncode = 0  # or Python complains that it still runs, as it is meant to


def _told(message: dict[str, Any] | None, root: Path) -> dict[str, Any]:
    if message is None:
        raise EmbeddedError(f"the keeper of {root} has ended: see {_log(root)}, then start again")
    if "fault" in message:
        raise EmbeddedError(str(message["fault"]))
    return message


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lets one client of a folder at a time into the block."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _log(root: Path) -> Path:
    return root / "log" / "keeper.log"
