"""Reaches the Docker engine that the environment names, always within a deadline."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils import kwargs_from_env
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from app.ports.protocols import Unavailable

DEFAULT_IMAGE = "evoqueue-sandbox:1"

_UNIX, _SOCKET = "unix://", "/var/run/docker.sock"
_CONFLICT = 409
_ANY_VERSION = "1.41"  # for the question of the version


@contextlib.contextmanager
def engine_client(seconds: float) -> Iterator[Any]:
    """Lends a client of the engine that the environment names.

    Raises:
      Unavailable: The engine does not answer in time, or refuses.
    """
    engine: Any = None
    try:
        engine = _connected(ceil(seconds))
        yield engine
    except ImageNotFound as error:
        raise Unavailable(
            f"no such image; `docker build -t {DEFAULT_IMAGE} infra/sandbox` makes the default "
            f"one: {error.explanation}"
        ) from error
    except APIError as error:
        raise Unavailable(f"the Docker engine refuses: {error.explanation}") from error
    except (DockerException, RequestException, HTTPError, OSError) as error:
        raise Unavailable(f"the Docker engine does not answer: {error}") from error
    finally:
        if engine is not None:
            engine.close()


def _connected(seconds: int) -> Any:
    """Returns a client that speaks the engine's version.

    The library would ask for the version while it makes the client, and leave one that gets no
    answer open.
    """
    place = kwargs_from_env()
    _knock(_address(), seconds)
    first = docker.APIClient(version=_ANY_VERSION, timeout=seconds, **place)
    try:
        version = first.version(api_version=False)["ApiVersion"]
    finally:
        first.close()
    return docker.APIClient(version=version, timeout=seconds, **place)


def _knock(address: str, seconds: int) -> None:
    """Raises OSError if nothing listens on a socket file: the library would leave it open."""
    if address.startswith(_UNIX):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(seconds)
            line.connect(address.removeprefix(_UNIX))


def _address() -> str:
    return os.environ.get("DOCKER_HOST") or _UNIX + _SOCKET


def socket_files() -> tuple[str, ...]:
    """Returns where the socket of an engine may be: the usual place, and where DOCKER_HOST says."""
    address = _address()
    named = (address.removeprefix(_UNIX),) if address.startswith(_UNIX) else ()
    return tuple({_SOCKET, *named})


def socket_at_hand() -> str:
    """Returns the file of the engine's socket; "" if there is none or this user may not open it."""
    path = _address().removeprefix(_UNIX)
    try:
        there = stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return ""
    return path if there and os.access(path, os.W_OK) else ""


def socket_group() -> int | None:
    """Returns the group of the engine's socket if only that keeps this user from opening it."""
    address = _address()
    try:
        _knock(address, 1)
    except PermissionError:
        return os.stat(address.removeprefix(_UNIX)).st_gid
    except OSError:
        pass
    return None


def has_image(engine: Any, image: str) -> bool:
    try:
        engine.inspect_image(image)
    except ImageNotFound:
        return False
    return True


def remove(engine: Any, container: str) -> bool:
    """Removes a container by force; returns whether this call removed it.

    A container that is gone, or being removed by another process, is no error.
    """
    try:
        engine.remove_container(container, force=True)
    except NotFound:
        return False
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
        return False
    return True


def engine_answers(seconds: float) -> bool:
    """Returns whether a Docker engine answers within `seconds`."""
    if not os.environ.get("DOCKER_HOST") and not Path(_SOCKET).exists():
        return False
    try:
        with engine_client(seconds) as engine:
            return bool(engine.ping())
    except Unavailable:
        return False


def engine_is_near() -> bool:
    """Returns whether the engine is reached by a socket file, so that it is on this machine."""
    return _address().startswith(_UNIX)
