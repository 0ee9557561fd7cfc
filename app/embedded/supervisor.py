"""The process that owns an embedded stack: starts it, restarts what dies, and ends it.

    python -m app.embedded.supervisor FOLDER [workers]

The second argument says that workers will be asked for.

Every client holds a connection for as long as it needs the stack.  When the last one has closed,
in order or by SIGKILL, the supervisor ends every process and itself.  It is one thread, because the
kernel ties a child's death signal to the thread that started the child, and a session of its own,
because Ctrl-C is meant for the client.
"""

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from app.embedded.children import EmbeddedError, bound_log, end_recorded
from app.embedded.forks import Imports
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.server import close_socket_folder, open_socket_folder
from app.embedded.stack import ADDRESS, LOCK, Endpoints, WorkerRequest
from app.embedded.valkey import EmbeddedValkey
from app.embedded.worker_set import (
    WORKERS_END,
    RestartedProcess,
    flower_process,
    process_environment,
    worker_processes,
)
from app.startup import start_quickly

POLL_SECONDS = 0.5
"""How often the processes and the sizes of their logs are checked."""
FIRST_CLIENT_SECONDS = 10.0
"""How long a stack without any client yet is kept."""


class Supervisor:
    """Servers, workers and clients of one folder."""

    def __init__(self, root: Path, *, workers: bool = False):
        """Starts nothing.

        Args:
          root: The folder.
          workers: Whether the imports of workers begin beside the start of the servers.
        """
        self._root = root
        self._workers = workers
        self._imports = Imports()
        log = root / "log"
        self._postgres = EmbeddedPostgres(root / "postgres", log=log / "postgres.log")
        self._valkey = EmbeddedValkey(root / "valkey", log=log / "valkey.log")
        self._processes: dict[str, RestartedProcess] = {}
        self._given_up: set[str] = set()
        self._clients: set[Connection] = set()
        self._last_client: Connection | None = None

    def run(self) -> int:
        """Runs until the last client has left.

        Returns:
          The exit status: 1 when the servers could not be started.
        """
        lock = (self._root / LOCK).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        if self._workers:
            self._imports.begin()
        answer: Endpoints | EmbeddedError
        with self._listen() as listener:
            try:
                answer = self._start_servers()
            except EmbeddedError as error:
                answer = error
            self._serve(listener, answer)
        return 0 if isinstance(answer, Endpoints) else 1

    @contextmanager
    def _listen(self) -> Iterator[socket.socket]:
        """Accepts clients during the block; afterwards ends every process of the stack."""
        folder = open_socket_folder(self._root, None)
        address = self._root / ADDRESS
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(str(folder / "supervisor.sock"))
                listener.listen()
                part = address.with_suffix(".part")
                part.write_bytes(os.fsencode(folder / "supervisor.sock"))
                part.replace(address)
                yield listener
            finally:
                listener.close()
                address.unlink(missing_ok=True)
                self._end_processes()
                close_socket_folder(self._root)

    def _start_servers(self) -> Endpoints:
        for record in (self._root / "pids").glob("*.pid"):
            end_recorded(record, WORKERS_END)
        redis_url = self._valkey.start()
        return Endpoints(self._postgres.start(), redis_url)

    def _serve(self, listener: socket.socket, answer: Endpoints | EmbeddedError) -> None:
        """Serves clients until the last one has left, or none has come in time."""
        deadline = time.monotonic() + FIRST_CLIENT_SECONDS
        while self._clients or (self._last_client is None and time.monotonic() < deadline):
            for ready in wait([listener, *self._clients], POLL_SECONDS):
                if isinstance(ready, Connection):
                    self._receive(ready, answer)
                else:
                    self._accept(listener, answer)
            if isinstance(answer, Endpoints):
                self._restart_servers()
                self._restart_processes()
                for log in (self._root / "log").glob("*.log"):
                    bound_log(log)

    def _accept(self, listener: socket.socket, answer: Endpoints | EmbeddedError) -> None:
        client = Connection(listener.accept()[0].detach())
        self._clients.add(client)
        _send(client, answer)
        if self._last_client is not None:
            self._last_client.close()
            self._last_client = None

    def _receive(self, client: Connection, answer: Endpoints | EmbeddedError) -> None:
        """Handles a client's request, or its end.

        The connection of the last client stays open until every process has ended, so that
        the client sees the end by the closing of its connection.
        """
        try:
            request: WorkerRequest | None = client.recv()
        except (EOFError, OSError):
            request = None
        if request is not None and isinstance(answer, Endpoints):
            try:
                self._start_processes(request, answer)
                _send(client, answer)
            except EmbeddedError as error:
                _send(client, error)
            return
        self._clients.discard(client)
        if self._clients:
            client.close()
        else:
            self._last_client = client

    def _start_processes(self, request: WorkerRequest, endpoints: Endpoints) -> None:
        """Starts the requested processes that do not run yet."""
        environment = {
            **process_environment(request.environment),
            "EVOQ_DATABASE_URL": endpoints.database_url,
            "EVOQ_REDIS_URL": endpoints.redis_url,
        }
        specs = worker_processes(request.workers, environment) if request.workers else []
        if request.flower and "flower" not in self._processes:
            _require_free(request.flower.port)
            specs.append(flower_process(request.flower, environment))
        for spec in specs:
            if spec.name not in self._processes:
                self._processes[spec.name] = RestartedProcess(spec, self._root, self._imports)

    def _restart_servers(self) -> None:
        for server, name in ((self._postgres, "postgres"), (self._valkey, "valkey")):
            if not server.running and name not in self._given_up:
                _log(f"{name} ended; starting it again")
                try:
                    server.start()
                except EmbeddedError as error:
                    self._given_up.add(name)
                    self._announce(EmbeddedError(f"{name} cannot be kept running: {error}"))

    def _restart_processes(self) -> None:
        for process in self._processes.values():
            try:
                event = process.restart_if_due()
            except EmbeddedError as error:
                self._announce(error)
            else:
                if event:
                    _log(event)

    def _announce(self, error: EmbeddedError) -> None:
        _log(str(error))
        for client in self._clients:
            _send(client, error)

    def _end_processes(self) -> None:
        for process in self._processes.values():
            process.request_end()
        for process in self._processes.values():
            process.stop()
        self._valkey.stop()
        self._postgres.stop()


def _send(client: Connection, answer: Endpoints | EmbeddedError) -> None:
    """Sends an answer; the end of a client that is gone is noticed by the next `wait`."""
    with suppress(OSError):
        client.send(answer)


def _log(line: str) -> None:
    """Writes to the supervisor's log; a full disk ends no process."""
    with suppress(OSError):
        print(line, flush=True)


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EmbeddedError(
                f"Flower cannot listen on 127.0.0.1:{port}: {error.strerror}: choose another port"
            ) from error


def main() -> None:
    """Runs the stack of the folder on the command line."""
    start_quickly()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(Supervisor(Path(sys.argv[1]), workers="workers" in sys.argv[2:]).run())


if __name__ == "__main__":
    main()
