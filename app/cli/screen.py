"""What a command prints: texts for people, or one JSON document for programs."""

import json
import sys
from typing import Any

from rich.console import Console

PIPE_COLUMNS = 200


class Screen:
    """Standard output and standard error of one command.

    Attributes:
      json: Whether standard output gets one JSON document and nothing else.
      out: Where texts for people go: standard output, or standard error beside a document.
      err: Standard error.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.err = _console(stderr=True)
        self.out = self.err if json else _console(stderr=False)

    def answer(self, document: Any) -> None:
        """Prints the document, if one was asked for."""
        if self.json:
            sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Prints a line for people, as it stands."""
        self.out.print(text, markup=False)

    def note(self, text: str) -> None:
        """Prints a notice: on standard error, whatever was asked for."""
        self.err.print(text, markup=False)


def _console(*, stderr: bool) -> Console:
    """Returns a console; off a terminal nobody folds long lines, so nothing is cut either."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_COLUMNS
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=width)
