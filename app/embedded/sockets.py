"""A private folder for a server's Unix socket, at a path short enough for one."""

import os
import shutil
import tempfile
from pathlib import Path

from app.embedded.errors import EmbeddedError
from app.embedded.os_user import reachable

LONGEST_SOCKET_PATH = 103
"""Bytes, without the final zero: macOS allows 103, Linux 107."""
LONGEST_NAME = len("/.s.PGSQL.5432.lock")
PREFIX = "evoq-"


def open_socket_folder(home: Path, uid: int | None) -> Path:
    """Makes a folder that only its owner can enter.

    It is `home/run` where that is short and, for another user, reachable; otherwise a new folder
    under the machine's temporary one, noted in `home/run.at` so that the next start removes it.

    Args:
      home: The server's folder, which exists.
      uid: The user who will open the socket; None is ours.
    """
    close_socket_folder(home)
    near = (home / "run").resolve()
    short = len(os.fsencode(near)) + LONGEST_NAME <= LONGEST_SOCKET_PATH
    try:
        if short and (uid is None or reachable(home)):
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
    room = len(os.fsencode(usual)) + len("/evoq-12345678") + LONGEST_NAME
    return usual if room <= LONGEST_SOCKET_PATH and reachable(usual) else Path("/tmp")
