"""Reaches the Docker engine that the environment names, always within a deadline."""

import contextlib
from collections.abc import Iterator
from math import ceil

from docker import APIClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils import kwargs_from_env
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from app.adapters.sandbox import engine_socket
from app.ports.protocols import Unavailable

DEFAULT_IMAGE = "evoqueue-sandbox:1"

_CONFLICT = 409
_ANY_VERSION = "1.41"
"""Version of the API in which an engine is asked for its own version."""
_FIRST_ANSWER_SECONDS = 10
"""The version costs an engine nothing; other answers may take longer."""


@contextlib.contextmanager
def engine_client(seconds: float) -> Iterator[APIClient]:
    """Lends a client of the engine that the environment names.

    Raises:
      Unavailable: The engine does not answer in time, or refuses.
    """
    engine: APIClient | None = None
    try:
        engine = _connect(ceil(seconds))
        yield engine
    except ImageNotFound as error:
        raise Unavailable(
            f"no such image; `docker build -t {DEFAULT_IMAGE} app/adapters/sandbox/image` "
            f"makes the default one: {error.explanation}"
        ) from error
    except APIError as error:
        raise Unavailable(f"the Docker engine refuses: {error.explanation}") from error
    except (DockerException, RequestException, HTTPError, OSError) as error:
        raise Unavailable(
            f"the Docker engine at {engine_socket.address()} does not answer: {error}"
        ) from error
    finally:
        if engine is not None:
            engine.close()


def _connect(seconds: int) -> APIClient:
    """Returns a client that speaks the engine's version.

    The library would ask for the version while it makes the client, and leave one that gets no
    answer open.
    """
    place = kwargs_from_env()
    engine_socket.knock(engine_socket.address(), seconds)
    first = APIClient(version=_ANY_VERSION, timeout=min(seconds, _FIRST_ANSWER_SECONDS), **place)
    try:
        version = first.version(api_version=False)["ApiVersion"]
    finally:
        first.close()
    return APIClient(version=version, timeout=seconds, **place)


def image_id(engine: APIClient, image: str) -> str:
    """Returns the id of an image, which no other image can have.

    Raises:
      ImageNotFound: The engine has no such image.
    """
    return str(engine.inspect_image(image)["Id"])  # type: ignore[no-untyped-call]


def has_image(engine: APIClient, image: str) -> bool:
    try:
        image_id(engine, image)
    except ImageNotFound:
        return False
    return True


def remove(engine: APIClient, container: str) -> bool:
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
