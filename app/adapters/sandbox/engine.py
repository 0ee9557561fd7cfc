"""Reaches the Docker engine that the environment names, always within a deadline."""

import contextlib
import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound
from docker.utils import kwargs_from_env
from requests.exceptions import RequestException

from app.ports import Unavailable

DEFAULT_IMAGE = "evoqueue-sandbox:1"


@contextlib.contextmanager
def engine_client(seconds: float) -> Iterator[Any]:
    """Lends a client of the engine that the environment names.

    Raises:
      Unavailable: The engine does not answer in time, or refuses.
    """
    engine: Any = None
    try:
        engine = docker.APIClient(version="auto", timeout=ceil(seconds), **kwargs_from_env())
        yield engine
    except ImageNotFound as error:
        raise Unavailable(
            f"no such image; `docker build -t {DEFAULT_IMAGE} infra/sandbox` makes the default "
            f"one: {error.explanation}"
        ) from error
    except (DockerException, RequestException, OSError) as error:
        raise Unavailable(f"the Docker engine does not answer: {error}") from error
    finally:
        if engine is not None:
            engine.close()


def has_image(engine: Any, image: str) -> bool:
    try:
        engine.inspect_image(image)
    except ImageNotFound:
        return False
    return True


def engine_answers(seconds: float) -> bool:
    """Returns whether a Docker engine answers within `seconds`."""
    if not os.environ.get("DOCKER_HOST") and not Path("/var/run/docker.sock").exists():
        return False
    try:
        with engine_client(seconds) as engine:
            return bool(engine.ping())
    except Unavailable:
        return False
