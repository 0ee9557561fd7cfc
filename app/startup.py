"""What makes the start and the end of a process cheap that imports thousands of modules."""

import atexit
import gc
import os
from collections.abc import MutableMapping

_USUAL = gc.get_threshold()
_FIRST_GENERATION = 50_000
"""Objects that are made between two collections.  After Python's own 700 the modules of a command
would be looked through hundreds of times while they are imported."""
_NO_PLUGINS = ("PYDANTIC_DISABLE_PLUGINS", "__all__")
"""Pydantic looks for plugins in the metadata of all that is installed."""


def start_quickly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Makes this process collect garbage seldom, and not at its end, when all memory goes anyway.

    Together with the search for plugins of Pydantic that is a third of what a start and an end of a
    command cost.

    Args:
      environment: That of this process, which its children inherit; a variable that is set stays.
    """
    gc.set_threshold(_FIRST_GENERATION, *_USUAL[1:])
    atexit.register(gc.freeze)
    environment.setdefault(*_NO_PLUGINS)


def collect_as_usual() -> None:
    """Makes this process collect garbage as often as Python does; still not at its end."""
    gc.set_threshold(*_USUAL)
