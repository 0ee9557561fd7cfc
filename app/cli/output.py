"""Output of a command: text for people, one JSON document for programs, errors, exit codes."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import typer
from rich.console import Console

from app.domain.evaluation import COMBINED

DONE, FAILED, WRONG_USAGE = 0, 1, 2

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""`ClickException`, wherever this version of Typer keeps it."""

PIPE_COLUMNS = 200
MOST_NAMES = 20


class Screen:
    """Standard output and standard error of one command.

    Attributes:
      json: Whether standard output gets one JSON document and nothing else.
      out: Console for text: standard output, or standard error beside a document.
      err: Console of standard error.
    """

    def __init__(self, *, json: bool, quiet: bool = False) -> None:
        """Opens the consoles; `quiet` ones print nothing."""
        self.json = json
        self.err = _console(stderr=True, quiet=quiet)
        self.out = self.err if json else _console(stderr=False, quiet=quiet)

    def answer(self, document: object) -> None:
        """Prints the document, if JSON was requested."""
        if self.json:
            sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Prints a line of text without markup."""
        self.out.print(text, markup=False)

    def note(self, text: str) -> None:
        """Prints a notice on standard error."""
        self.err.print(text, markup=False)


def _console(*, stderr: bool, quiet: bool) -> Console:
    """Returns a console; on a pipe it is wide enough that no table is cut.

    It reads no markup: names and texts come from problems and programs.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_COLUMNS
    return Console(
        stderr=stderr,
        quiet=quiet,
        highlight=False,
        soft_wrap=True,
        width=width,
        markup=False,
        emoji=False,
    )


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An error as a command reports it.

    Attributes:
      kind: A word for programs.
      message: Text for people: cause, place, value and remedy.
      code: The exit status.
    """

    kind: str
    message: str
    what: str
    where: str = ""
    value: str = ""
    remedy: str = ""
    code: int = FAILED

    def document(self) -> dict[str, str]:
        """Returns the report as JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "code"}


def print_error(report: ErrorReport, screen: Screen) -> None:
    """Prints one message on standard error, and the document if JSON was requested."""
    screen.note(f"error: {report.message}")
    screen.answer({"error": report.document()})


def mean_of(names: Sequence[str], *, game: bool = False) -> str:
    """Returns which metrics the fitness is the mean of; "" where it is `combined_score`.

    Args:
      names: The metrics.
      game: Whether the programs play each other, so that a fitness holds in its generation alone.
    """
    if game:
        return (
            "fitness: the share of the points in the games of one generation; the ratings of "
            "`evoq show` compare programs of several"
        )
    if not names or tuple(names) == (COMBINED,):
        return ""
    shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    return f"fitness: the mean of {shown}, because the evaluator returns no `{COMBINED}`"


def counted(kinds: Mapping[str, int]) -> str:
    """Returns a number of proposals with its parts by kind, the most frequent first."""
    parts = sorted(kinds.items(), key=lambda entry: (-entry[1], entry[0]))
    named = ", ".join(f"{kind} {n}" for kind, n in parts)
    return f"{sum(kinds.values())} ({named})" if parts else "0"


def counted_measured(measured: int, entered: int) -> str:
    """Returns the numbers of proposals that were measured, and that a cell of the archive took."""
    return f"{measured} measured, of which {entered} entered the archive"
