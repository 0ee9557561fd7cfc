"""Lines for whoever began something: results and notices, wherever they are shown."""

import sys
from typing import Protocol


class Notes(Protocol):
    """Shows lines of text."""

    def say(self, text: str) -> None:
        """Shows a line that belongs to the result."""
        ...

    def note(self, text: str) -> None:
        """Shows a notice beside the result."""
        ...


class Silence:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Shows nothing."""

    def note(self, text: str) -> None:
        """Shows nothing."""


def note_on_standard_error(text: str) -> None:
    """Writes a notice on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class CommandError(Exception):
    """A command failed; the message names the cause, the place and the remedy."""
