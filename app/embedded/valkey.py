"""A real Valkey from a wheel, for one folder, on a Unix socket.

The queue holds messages that name work, never the work itself: `reap` sends again what Valkey
loses.  It still writes its append-only file once a second, so that a restart need not wait for
`reap`.  It has no password: its socket lies in a folder that only its owner can enter, and Celery
would show a password in its statistics.
"""

import signal
import socket
from pathlib import Path
from urllib.parse import quote

from app.embedded.binaries import valkey_server
from app.embedded.children import Ending, explain_failure
from app.embedded.server import ServerProcess

START_SECONDS = 30.0
IN_ORDER = Ending(orphaned=signal.SIGTERM, requested=signal.SIGTERM, grace_seconds=10.0)


class EmbeddedValkey:
    """One server for one folder; a second start of the same folder ends the first server."""

    def __init__(self, home: Path, *, log: Path | None = None):
        """Starts nothing."""
        self._process = ServerProcess("Valkey", home, IN_ORDER, log)
        self.home = self._process.home

    def start(self) -> str:
        """Starts the server; when called again after it died, at the same address.

        Returns:
          `unix:///path?db=0`, for redis-py; `app.celery` reads the same form.

        Raises:
          EmbeddedError: The server cannot be started here; says why and what to do.
        """
        server = valkey_server()
        folder = self.home / "data"
        with explain_failure(f"keep a queue in {self.home}"):
            folder.mkdir(parents=True, exist_ok=True)
            self._process.end_recorded()
            path = self._process.open_sockets() / "valkey.sock"
            configuration = self.home / "valkey.conf"
            configuration.write_text(_configuration(folder, path), "utf-8", "surrogateescape")
        self._process.launch(
            [str(server), str(configuration)],
            folder=folder,
            uid=None,
            ready=lambda _: _answers(path),
            start_seconds=START_SECONDS,
        )
        return f"unix://{quote(str(path))}?db=0"

    def stop(self) -> None:
        """Ends the server in order.  Idempotent; the queue stays."""
        self._process.stop()

    @property
    def running(self) -> bool:
        return self._process.running

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


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
    return f"""\
port 0
unixsocket "{path}"
unixsocketperm 700
dir "{folder}"
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
daemonize no
hz 2
"""
