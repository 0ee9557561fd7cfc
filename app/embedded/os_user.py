"""The unprivileged OS user of Postgres where the stack is started by root.

Postgres refuses to run as root.  Its user is a bare number without a name, which owns no other
files and runs no other programs: a sandboxed program that runs as `nobody` can neither read the
ledger nor signal the server.
"""

import os
import pwd
import stat
from pathlib import Path

from app.embedded.children import EmbeddedError

FIRST_UID = 59_173
"""Above the user ids in use in practice, below the 65,536 that a rootless container maps."""


def running_as_root() -> bool:
    """Returns whether Postgres may and must run under another user."""
    return os.geteuid() == 0


def free_uid() -> int:
    """Returns a user id without an account on this machine."""
    for uid in range(FIRST_UID, FIRST_UID - 1000, -1):
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise EmbeddedError(
        f"no unused user id between {FIRST_UID - 999} and {FIRST_UID} to run Postgres under: "
        "run this as an ordinary user instead of root"
    )


def named_uid() -> int:
    """Returns the id of an account without privileges: `initdb` needs a user with a name.

    The files are given to the nameless user as soon as they are written.
    """
    for name in ("nobody", "daemon", "bin"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise EmbeddedError(
        "no account `nobody`, `daemon` or `bin` in /etc/passwd to create the database under: "
        "run this as an ordinary user instead of root"
    )


def give(folder: Path, uid: int) -> None:
    """Makes `uid` the owner of a folder and everything in it, following no link.

    Raises:
      EmbeddedError: The folder holds something that is neither a folder nor a file with one name
        (a hard link to a file elsewhere would give that file away too).
    """
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            path = os.path.join(parent, name)
            status = os.lstat(path)
            single = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
            if not (single or stat.S_ISDIR(status.st_mode)):
                raise EmbeddedError(f"{path} is not a plain file: remove {folder} and start again")
            os.chown(path, uid, uid, follow_symlinks=False)
    os.chown(folder, uid, uid, follow_symlinks=False)


def reachable(path: Path) -> bool:
    """Returns whether a user that owns nothing here can read `path`."""
    path = path.resolve()
    if not all(_open_to_all(parent, stat.S_IXOTH) for parent in path.parents):
        return False
    return _open_to_all(path, stat.S_IROTH | stat.S_IXOTH)


def _open_to_all(path: Path, bits: int) -> bool:
    try:
        return path.stat().st_mode & bits == bits
    except OSError:
        return False
