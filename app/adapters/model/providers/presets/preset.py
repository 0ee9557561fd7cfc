"""What differs from one OpenAI-compatible endpoint to the next."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Request: TypeAlias = Mapping[str, Any]
"""The arguments of one chat request, by OpenAI's names."""


def unchanged(request: Request) -> Request:
    """Returns the request as it is."""
    return request


@dataclass(frozen=True, slots=True)
class Preset:
    """An endpoint known by name.

    Attributes:
      base_url: Its address; for a local server the one it listens on unless told otherwise.
      key_variable: Environment variable its key is usually in.
      needs_key: Whether it refuses whoever has none.
      samples: Whether it takes `n` above 1.
      shape: Turns a request into one the endpoint takes.
    """

    base_url: str
    key_variable: str
    needs_key: bool = True
    samples: bool = True
    shape: Callable[[Request], Request] = unchanged


def without(request: Request, *names: str) -> Request:
    """Returns the request without these parameters."""
    return {name: value for name, value in request.items() if name not in names}
