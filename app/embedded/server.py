"""What Postgres and Valkey share: a server process of one folder, and the folder of its socket.

The socket lies in a private folder, at a path short enough for a Unix socket.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from app.embedded.children import (
    ChildProcess,
    ChildSpec,
    EmbeddedError,
    Ending,
    end_recorded,
    launch,
    remedy,
    tail,
)
from app.embedded.os_user import reachable

POLL_SECONDS = 0.02
LONGEST_SOCKET_PATH = 103
"""Bytes, without the final zero: macOS allows 103, Linux 107."""
LONGEST_NAME = len("/.s.PGSQL.5432.lock")
PREFIX = "evoq-"


class ServerProcess:
    """A server of one folder; a second start in the same folder ends the first server.

    Attributes:
      home: The server's folder; also holds the record of its process.
      record: Where the identity of the process is kept until it has ended.
    """

    def __init__(self, name: str, home: Path, ending: Ending, log: Path | None):
        """Starts nothing.

        Args:
          name: As messages call the server.
          home: The server's folder.
          ending: How the server is stopped.
          log: None keeps it in `home`.
        """
        self.home = home.absolute()
        self.record = self.home / f"{name.lower()}.pid"
        self._name = name
        self._ending = ending
        self._log = log or self.home / f"{name.lower()}.log"
        self._child: ChildProcess | None = None
        self._sockets: Path | None = None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.exit_status is None

    def end_recorded(self) -> None:
        """Ends the server that an earlier start left in this folder."""
        end_recorded(self.record, self._ending)

    def open_sockets(self, uid: int | None = None) -> Path:
        """Makes the folder of the server's socket, the same one until `stop`, and returns it.

        Args:
          uid: The user who will open the socket; None is the current one.
        """
        self._sockets = self._sockets or open_socket_folder(self.home, uid)
        return self._sockets

    def launch(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        uid: int | None,
        ready: Callable[[int], bool],
        start_seconds: float,
    ) -> None:
        """Starts the server and waits until it is ready.

        Args:
          command: The program's path and its arguments.
          folder: The working directory.
          uid: The user to run under; None is the current one.
          ready: Returns whether the server with this process id accepts connections.
          start_seconds: How long that may take.

        Raises:
          EmbeddedError: The server ended or is not ready in time; quotes its log.
        """
        name = self._name.lower()
        self._child = launch(
            ChildSpec(name, command, folder, self._log, self.record, self._ending, uid=uid)
        )
        deadline = time.monotonic() + start_seconds
        while not ready(self._child.pid):
            status = self._child.exit_status
            if status is not None or time.monotonic() > deadline:
                why = "does not answer" if status is None else f"ended with status {status}"
                self.stop()
                lines = tail(self._log)
                raise EmbeddedError(f"{self._name} {why} ({self._log}):\n{lines}\n{remedy(lines)}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Ends the server in order and removes the folder of its socket.  Idempotent."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        if self._sockets is not None:
            self._sockets = None
            close_socket_folder(self.home)


def open_socket_folder(home: Path, uid: int | None) -> Path:
    """Makes a folder that only its owner can enter.

    It is `home/run` where that path is short, of ASCII characters, which every client encodes
    alike, and, for another user, reachable; otherwise a new folder under the machine's temporary
    one, noted in `home/run.at` so that the next start removes it.

    Args:
      home: The server's folder, which exists.
      uid: The user who will open the socket; None is the current one.
    """
    close_socket_folder(home)
    near = (home / "run").resolve()
    path = os.fsencode(near)
    short = len(path) + LONGEST_NAME <= LONGEST_SOCKET_PATH
    try:
        if short and path.isascii() and (uid is None or reachable(home)):
            near.mkdir(mode=0o700)
            folder = near
        else:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_temporary()))
            (home / "run.at").write_text(str(folder))
        if uid is not None:
            os.chown(folder, uid, uid)
    except OSError as error:
        raise EmbeddedError(
            f"no folder for a server's socket below {home} or {_short_temporary()}: {error}: "
            "make one of them writable"
        ) from error
    return folder


def close_socket_folder(home: Path) -> None:
    """Removes what `open_socket_folder` made, in this process or an earlier one."""
    note = home / "run.at"
    if note.exists():
        far = Path(note.read_text().strip())
        if far.name.startswith(PREFIX) and far.parent == _short_temporary():
            shutil.rmtree(far, ignore_errors=True)
        note.unlink()
    shutil.rmtree(home / "run", ignore_errors=True)


def _short_temporary() -> Path:
    """Returns the machine's temporary folder, or /tmp where that is long or private."""
    usual = Path(tempfile.gettempdir())
    length = len(os.fsencode(usual)) + len("/evoq-12345678") + LONGEST_NAME
    return usual if length <= LONGEST_SOCKET_PATH and reachable(usual) else Path("/tmp")
