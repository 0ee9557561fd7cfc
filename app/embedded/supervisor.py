"""The process that owns an embedded stack: it starts it, watches it, and ends it with its clients.

    python -m app.embedded.supervisor FOLDER

Every client holds a connection for as long as it needs the stack.  When the last one has left, in
order or by SIGKILL, the keeper ends everything and itself.  It is one thread, because the kernel
ties a child's death signal to the thread that made it, and a session of its own, because Ctrl-C is
for the client.
"""

import fcntl
import json
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.embedded.children import ChildProcess, end_recorded, launch
from app.embedded.errors import EmbeddedError, tail
from app.embedded.ipc import Line
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.sockets import close_socket_folder, open_socket_folder
from app.embedded.valkey import EmbeddedValkey
from app.embedded.worker_set import (
    WORKERS_END,
    Flower,
    Post,
    WorkerSet,
    flower_post,
    posts,
    surroundings,
)

LOOK_SECONDS = 0.25
"""How often the children are looked at."""
LONELY_SECONDS = 10.0
"""How long a stack nobody has asked for yet is kept."""
SHORT_LIFE_SECONDS = 60.0
SHORT_LIVES = 5
"""A process that ends early this often in a row is not started again."""


class Supervisor:
    """Servers, crew and clients of one folder."""

    def __init__(self, root: Path):
        """Starts nothing."""
        self._root = root
        self._log = root / "log"
        self._postgres = EmbeddedPostgres(root / "postgres", log=self._log / "postgres.log")
        self._valkey = EmbeddedValkey(root / "valkey", log=self._log / "valkey.log")
        self._addresses: dict[str, str] = {}
        self._crew: dict[str, Watched] = {}
        self._clients: set[Line] = set()
        self._last: Line | None = None
        self._given_up: set[str] = set()
        self._fault = ""

    def keep(self) -> int:
        """Runs until the last client has left.

        Returns:
          The exit status: 1 when the servers could not be started.
        """
        lock = (self._root / "keeper.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        folder = open_socket_folder(self._root, None)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(folder / "keeper.sock"))
            listener.listen()
            _write(self._root / "keeper.json", {"socket": str(folder / "keeper.sock")})
            self._start_servers()
            self._serve(listener)
        finally:
            listener.close()
            (self._root / "keeper.json").unlink(missing_ok=True)
            self._end()
            close_socket_folder(self._root)
        return 1 if self._fault else 0

    def _start_servers(self) -> None:
        try:
            for record in (self._root / "pids").glob("*.pid"):
                end_recorded(record, WORKERS_END)
            self._addresses = {
                "redis_url": self._valkey.start(),
                "database_url": self._postgres.start(),
            }
        except EmbeddedError as error:
            self._fault = str(error)

    def _serve(self, listener: socket.socket) -> None:
        alone_since: float | None = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while alone_since is None or time.monotonic() - alone_since < LONELY_SECONDS:
                for key, _ in selector.select(LOOK_SECONDS):
                    if key.fileobj is listener:
                        self._welcome(selector, listener)
                    else:
                        self._attend(selector, key.data)
                        if not self._clients:
                            return
                if self._clients:
                    alone_since = None
                if not self._fault:
                    self._look()

    def _welcome(self, selector: selectors.BaseSelector, listener: socket.socket) -> None:
        client = Line(listener.accept()[0])
        self._clients.add(client)
        selector.register(client, selectors.EVENT_READ, client)
        self._tell(client, {"fault": self._fault} if self._fault else self._addresses)

    def _attend(self, selector: selectors.BaseSelector, client: Line) -> None:
        """Does what a client asks; one that has gone or leaves is forgotten.

        The last one's line stays open until everything has ended: that is how it knows.
        """
        try:
            message = client.hear(timeout_seconds=5.0)
        except (TimeoutError, ValueError):
            message = None
        if message is not None and "crew" in message:
            try:
                self._muster(message)
                self._tell(client, {"crew": sorted(self._crew)})
            except EmbeddedError as error:
                self._tell(client, {"fault": str(error)})
            return
        selector.unregister(client)
        self._clients.discard(client)
        if self._clients:
            client.close()
        else:
            self._last = client

    def _muster(self, message: dict[str, Any]) -> None:
        """Starts what is asked for and does not run yet."""
        environment = {
            **surroundings(message["environment"]),
            "EVOQ_DATABASE_URL": self._addresses["database_url"],
            "EVOQ_REDIS_URL": self._addresses["redis_url"],
        }
        wanted = posts(WorkerSet(**message["crew"]), environment) if message["crew"] else []
        if message["flower"] and "flower" not in self._crew:
            flower = Flower(**message["flower"])
            _require_free(flower.port)
            wanted.append(flower_post(flower, environment))
        for post in wanted:
            if post.name not in self._crew:
                self._crew[post.name] = Watched(post, self._root)

    def _look(self) -> None:
        """Starts again what has died; tells the clients when that is of no use."""
        for server, name in ((self._postgres, "postgres"), (self._valkey, "valkey")):
            if not server.running and name not in self._given_up:
                _note(f"{name} ended; starting it again")
                try:
                    server.start()
                except EmbeddedError as error:
                    self._given_up.add(name)
                    self._announce(f"{name} cannot be kept running: {error}")
        for watched in self._crew.values():
            given_up = watched.look()
            if given_up:
                self._announce(given_up)

    def _announce(self, fault: str) -> None:
        _note(fault)
        for client in self._clients:
            self._tell(client, {"fault": fault})

    def _tell(self, client: Line, message: dict[str, Any]) -> None:
        try:
            client.say(message)
        except OSError:
            return  # it has gone; the selector will say so

    def _end(self) -> None:
        for watched in self._crew.values():
            watched.ask()
        for watched in self._crew.values():
            watched.stop()
        self._valkey.stop()
        self._postgres.stop()


class Watched:
    """One process of the crew, started again when it dies, within reason."""

    def __init__(self, post: Post, root: Path):
        """Starts it."""
        self._post = post
        self._root = root
        self._short_lives = 0
        self._again_at: float | None = None
        self._child: ChildProcess | None = None
        self._begin()

    def look(self) -> str:
        """Starts it again if it is due.

        Returns:
          Why it is given up, once; otherwise nothing.
        """
        if self._again_at is not None:
            return self._begin_again() if time.monotonic() >= self._again_at else ""
        if self._child is None or self._child.exit_status is None:
            return ""
        status = self._child.exit_status
        self.stop()
        self._child = None
        return self._failed(f"ended with status {status}")

    def _begin_again(self) -> str:
        """Starts it; what cannot be started now, on a full disk for one, may be a little later."""
        try:
            self._begin()
        except EmbeddedError as error:
            return self._failed(str(error))
        return ""

    def _failed(self, how: str) -> str:
        """Says when it is due again, or why it is given up."""
        now = time.monotonic()
        early = now - self._begun < SHORT_LIFE_SECONDS
        self._short_lives = self._short_lives + 1 if early else 1
        if self._short_lives >= SHORT_LIVES:
            return (
                f"{self._post.name} ended {self._short_lives} times within a minute of its start, "
                f"the last time: {how} ({self._log}):\n{tail(self._log)}"
            )
        _note(f"{self._post.name}: {how}; starting it again")
        self._again_at = now + 0.5 * 2**self._short_lives
        return ""

    def ask(self) -> None:
        """Asks it to end."""
        if self._child is not None:
            self._child.ask()

    def stop(self) -> None:
        """Ends it."""
        if self._child is not None:
            self._child.stop()

    @property
    def _log(self) -> Path:
        return self._root / "log" / f"{self._post.name}.log"

    def _begin(self) -> None:
        self._again_at = None
        self._begun = time.monotonic()
        self._child = launch(
            self._post.name,
            self._post.command,
            folder=self._root,
            log=self._log,
            record=self._root / "pids" / f"{self._post.name}.pid",
            ending=WORKERS_END,
            environment=self._post.environment,
        )


def _note(text: str) -> None:
    """Writes to the keeper's log; a disk that is full ends nobody."""
    with suppress(OSError):
        print(text, flush=True)


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EmbeddedError(
                f"Flower cannot listen on 127.0.0.1:{port}: {error.strerror}: choose another port"
            ) from error


def _write(path: Path, message: dict[str, str]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(message))
    part.replace(path)


def main() -> None:
    """Keeps the stack of the folder on the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(Supervisor(Path(sys.argv[1])).keep())


if __name__ == "__main__":
    main()
