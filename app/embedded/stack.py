"""The embedded stack as its clients see it: endpoints for as long as they are connected.

The stack of a folder runs in a process of its own, `app.embedded.supervisor`.  A client and the
supervisor exchange pickled values over a Unix socket in a private folder: the client sends at most
one `WorkerRequest`, and None to leave; each answer is the `Endpoints` or an `EmbeddedError`.
"""

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from app.config.places import available_cores, places
from app.embedded.children import EmbeddedError, explain_failure, remedy, tail
from app.embedded.worker_set import Flower, WorkerSet, process_environment

START_SECONDS = 120.0
"""Long, because Postgres may replay its log first, or an earlier supervisor may still be ending."""
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05
ADDRESS = "supervisor.socket"
"""The file in a stack's folder that holds the path of the supervisor's socket."""
LOCK = "supervisor.lock"
"""The file in a stack's folder that its supervisor keeps locked."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of a stack's servers.

    Attributes:
      database_url: `postgresql+psycopg://…?host=/socket/folder`; holds the password.
      redis_url: `unix:///path?db=0`, as redis-py and `EVOQ_REDIS_URL` take it.
    """

    database_url: str
    redis_url: str


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """A client's request for processes; those that run already are left as they are.

    Attributes:
      workers: None needs none.
      flower: None needs none.
      environment: What the processes see beside the addresses of the servers.
    """

    workers: WorkerSet | None
    flower: Flower | None
    environment: Mapping[str, str]


class EmbeddedStack:
    """Postgres, Valkey and Celery workers for one folder, shared by all clients of that folder.

    The first client starts it, later ones join it, and it ends with the last, also when that client
    is killed.  Not for several threads.
    """

    def __init__(
        self,
        root: Path,
        prepare: Callable[[str], None] = lambda database_url: None,  # noqa: ARG005
        *,
        workers: WorkerSet | None = None,
        environment: Mapping[str, str] | None = None,
        flower: Flower | None = None,
    ):
        """Starts nothing.

        Args:
          root: The folder of all data and logs, `.evoq`; made if absent.
          prepare: Called with the database's URL before any worker starts, by one client at a
            time: it brings the schema up to date.
          workers: None chooses by the number of cores.
          environment: What workers see; None is the environment of this process.  The workers of a
            stack that is joined keep the environment they were started with.
          flower: None runs none.
        """
        self._root = root.absolute()
        self._prepare = prepare
        self._environment = dict(os.environ if environment is None else environment)
        self._workers = workers or _worker_set(self._environment)
        self._flower = flower
        self._connection: Connection | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None

    def begin(self, *, workers: bool = True) -> None:
        """Joins the folder's stack, or begins to start one, and does not wait.

        For a caller with something else to do before `start`; `stop` ends it also without.

        Args:
          workers: Whether workers will be asked for.

        Raises:
          EmbeddedError: The stack cannot run here.
        """
        self._connection = _connect(self._root)
        if self._connection is None and not _supervised(self._root):
            self._supervisor = _start_supervisor(self._root, workers=workers)

    def start(self, *, workers: bool = True) -> Endpoints:
        """Joins the folder's stack, or starts one.

        Args:
          workers: False for a client that only reads.

        Raises:
          EmbeddedError: The stack cannot run here; says what failed, where, and the remedy.
        """
        if self._connection is None:
            self._join(workers=workers)
        assert self._connection is not None
        try:
            endpoints = _receive(self._connection, self._root)
            with _lock(self._root / "prepare.lock"):
                self._prepare(endpoints.database_url)
            if workers or self._flower:
                self._connection.send(
                    WorkerRequest(
                        self._workers if workers else None, self._flower, self._environment
                    )
                )
                _receive(self._connection, self._root)
        except BaseException:
            self.stop()
            raise
        return endpoints

    def check(self) -> None:
        """Raises when the stack can no longer be relied on; returns at once otherwise.

        Raises:
          EmbeddedError: A server or worker cannot be kept running, or the supervisor has ended.
        """
        if self._connection is None:
            raise EmbeddedError(f"the stack of {self._root} has not been started")
        if self._connection.poll():
            _receive(self._connection, self._root)

    def stop(self) -> None:
        """Leaves; the last client waits until every process has ended.  Idempotent."""
        if self._connection is None and self._supervisor is not None:
            # A stack that has begun may have failed to start.
            with suppress(EmbeddedError):
                self._join(workers=True)
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        try:
            connection.send(None)
            deadline = time.monotonic() + STOP_SECONDS
            while connection.poll(max(0.0, deadline - time.monotonic())):
                connection.recv()
            raise EmbeddedError(
                f"the stack of {self._root} has not ended after {STOP_SECONDS:.0f} s: "
                f"see {_log(self._root)}; the next start ends what is left"
            )
        except (EOFError, OSError):
            # The supervisor has ended, or has closed the connection because other clients need it.
            return
        finally:
            connection.close()
            _release(self._supervisor)
            self._supervisor = None

    def _join(self, *, workers: bool) -> None:
        """Connects to the supervisor of the folder, starting one if there is none.

        Args:
          workers: Whether workers will be asked for.

        Raises:
          EmbeddedError: The supervisor cannot run, or does not answer.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self._connection = _connect(self._root)
            if self._connection is not None:
                return
            if self._supervisor is None:
                if not _supervised(self._root):
                    self._supervisor = _start_supervisor(self._root, workers=workers)
            elif self._supervisor.poll() is not None:
                status, self._supervisor = self._supervisor.returncode, None
                if status != 0:
                    log = _log(self._root)
                    lines = tail(log)
                    raise EmbeddedError(
                        f"the supervisor of {self._root} ended with status {status} "
                        f"({log}):\n{lines}\n{remedy(lines)}"
                    )
                # Another supervisor began at the same moment.
            time.sleep(POLL_SECONDS)
        raise _no_answer(self._root)

    def __enter__(self) -> Endpoints:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def attach(root: Path) -> Endpoints | None:
    """Returns the endpoints of a stack that another client keeps running; None without one."""
    connection = _connect(root.absolute())
    if connection is None:
        return None
    with connection:
        return _receive(connection, root)


def _receive(connection: Connection, root: Path) -> Endpoints:
    """Waits for the supervisor's answer."""
    try:
        if not connection.poll(START_SECONDS):
            raise _no_answer(root)
        answer: Endpoints | EmbeddedError = connection.recv()
    except (EOFError, OSError) as error:
        raise EmbeddedError(
            f"the supervisor of {root} has ended: see {_log(root)}, then start again"
        ) from error
    if isinstance(answer, EmbeddedError):
        raise answer
    return answer


def _no_answer(root: Path) -> EmbeddedError:
    return EmbeddedError(
        f"the stack of {root} does not answer after {START_SECONDS:.0f} s: see {_log(root)}"
    )


def _worker_set(environment: Mapping[str, str]) -> WorkerSet:
    cores = available_cores()
    try:
        return WorkerSet.of(cores, places(environment, cores))
    except ValueError as error:
        raise EmbeddedError(str(error)) from error


def _connect(root: Path) -> Connection | None:
    try:
        path = os.fsdecode((root / ADDRESS).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise EmbeddedError(
            f"{root} belongs to another user ({error}): choose another folder with EVOQ_HOME"
        ) from error
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        client.close()
        return None
    return Connection(client.detach())


def _supervised(root: Path) -> bool:
    """Returns whether a supervisor of the folder is starting, running or ending."""
    try:
        with (root / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # The start of a supervisor reports the fault of the folder.
        return False
    return False


def _start_supervisor(root: Path, *, workers: bool) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "app.embedded.supervisor", str(root)]
    with explain_failure(f"keep a stack in {root}"):
        _log(root).parent.mkdir(parents=True, exist_ok=True)
        with _log(root).open("ab") as log:
            return subprocess.Popen(
                [*command, "workers"] if workers else command,
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=process_environment(os.environ),
                start_new_session=True,
            )


def _release(supervisor: "subprocess.Popen[bytes] | None") -> None:
    """Reaps a supervisor that has ended; one that serves other clients outlives this process."""
    if supervisor is None:
        return
    try:
        supervisor.wait(1.0)
    except subprocess.TimeoutExpired:
        # Without an exit status Python warns that the process is still running.
        supervisor.returncode = 0


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Admits one client of a folder at a time to the block."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _log(root: Path) -> Path:
    return root / "log" / "supervisor.log"
