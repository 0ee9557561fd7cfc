"""A finding of `evoq doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check of the installation.

    Attributes:
      ok: Whether it works.
      required: Whether a run needs it.
      remedy: What to do; "" where nothing need be done.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = False
