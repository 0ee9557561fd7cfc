"""The unprivileged account that Postgres runs under when we are root.

Postgres refuses to run as root.  The account is a bare number without a name: nobody else owns
files or runs programs under it, so a sandboxed program that runs as `nobody` can neither read the
ledger nor signal its server.
"""

import os
import pwd
import stat
from pathlib import Path

from app.embedded.errors import EmbeddedError

FIRST_UID = 59_173
"""Above the users' range in practice and below the 65,536 that a rootless container maps."""


def running_as_root() -> bool:
    """Returns whether this program may and must change the user of Postgres."""
    return os.geteuid() == 0


def free_uid() -> int:
    """Returns a number that no account of this machine has."""
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
    """Returns an account that has a name and no privileges: `initdb` runs under no other.

    Its files are handed to the nameless account as soon as they are written.
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
    """Hands a folder and everything in it to `uid`, following no link.

    Raises:
      EmbeddedError: Something in it is neither a folder nor a file of its own (a second name of
        a file elsewhere would hand that file over too).
    """
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            path = os.path.join(parent, name)
            found = os.lstat(path)
            single = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            if not (single or stat.S_ISDIR(found.st_mode)):
                raise EmbeddedError(f"{path} is not a plain file: remove {folder} and start again")
            os.chown(path, uid, uid, follow_symlinks=False)
    os.chown(folder, uid, uid, follow_symlinks=False)


def reachable(path: Path) -> bool:
    """Returns whether an account that owns nothing here can read `path`."""
    path = path.resolve()
    if not all(_open_to_all(parent, stat.S_IXOTH) for parent in path.parents):
        return False
    return _open_to_all(path, stat.S_IROTH | stat.S_IXOTH)


def _open_to_all(path: Path, bits: int) -> bool:
    try:
        return path.stat().st_mode & bits == bits
    except OSError:
        return False
