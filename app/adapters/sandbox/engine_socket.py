"""Where the Docker engine listens.

The client library is imported only where a container is used: with it, a worker of child processes
would start more slowly, and take more memory.
"""

import os
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

from app.ports.protocols import Unavailable

_UNIX, _SOCKET = "unix://", "/var/run/docker.sock"
_PORT, _ACCEPTING_SECONDS = 2375, 2.0


def knock(place: str, seconds: int) -> None:
    """Raises OSError if nothing listens on a socket file: the library would leave it open."""
    if place.startswith(_UNIX):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(seconds)
            line.connect(place.removeprefix(_UNIX))


def address() -> str:
    """Returns where the engine listens."""
    return os.environ.get("DOCKER_HOST") or _UNIX + _SOCKET


def socket_files() -> tuple[str, ...]:
    """Returns where the socket of an engine may be: the usual place, and where DOCKER_HOST says."""
    place = address()
    named = (place.removeprefix(_UNIX),) if place.startswith(_UNIX) else ()
    return tuple({_SOCKET, *named})


def socket_at_hand() -> str:
    """Returns where this process can connect to the engine, whether or not that answers; or "".

    That is a socket's file that it may open, or an address at which a connection is accepted.
    """
    if not engine_is_near():
        return address() if _accepts(address()) else ""
    path = address().removeprefix(_UNIX)
    try:
        there = stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return ""
    return path if there and os.access(path, os.W_OK) else ""


def _accepts(place: str) -> bool:
    parts = urlsplit(place)
    if parts.scheme not in ("tcp", "http", "https") or not parts.hostname:
        return False
    try:
        with socket.create_connection((parts.hostname, parts.port or _PORT), _ACCEPTING_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def socket_group() -> int | None:
    """Returns the group of the engine's socket if only that keeps this user from opening it."""
    place = address()
    try:
        knock(place, 1)
    except PermissionError:
        return os.stat(place.removeprefix(_UNIX)).st_gid
    except OSError:
        pass
    return None


def engine_answers(seconds: float) -> bool:
    """Returns whether a Docker engine answers within `seconds`."""
    if not os.environ.get("DOCKER_HOST") and not Path(_SOCKET).exists():
        return False
    from app.adapters.sandbox.engine import engine_client

    try:
        with engine_client(seconds) as engine:
            return bool(engine.ping())
    except Unavailable:
        return False


def engine_is_near() -> bool:
    """Returns whether the engine is reached by a socket file, so that it is on this machine."""
    return address().startswith(_UNIX)
