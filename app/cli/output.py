"""Output of a command: text for people, one JSON document for programs, errors, exit codes."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer
from rich.console import Console

from app.domain.evaluation import COMBINED

DONE, FAILED, WRONG_USAGE = 0, 1, 2

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""`ClickException`, wherever this version of Typer keeps it."""

PIPE_COLUMNS = 200
MOST_NAMES = 20
ARTIFACT_CHARS = 4096
"""Characters of an artifact in a document."""
SHOWN_CHARS = 500
"""Characters of an artifact on the screen."""


class CommandError(Exception):
    """A command failed; the message names the cause, the place and the remedy."""


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

    def answer(self, document: Any) -> None:
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


def error_report(error: BaseException) -> ErrorReport:
    """Returns the report of an error; of an unexpected one, that of an internal error."""
    from app.config.layers import UsageError
    from app.domain.problem import EvaluatorBroken, ProblemError
    from app.embedded.children import EmbeddedError
    from app.ports.protocols import Misconfigured, Unavailable

    text = str(error)
    match error:
        case UsageError():
            code = WRONG_USAGE
            return ErrorReport(
                "usage", text, error.what, error.where, error.value, error.remedy, code
            )
        case ProblemError():
            return ErrorReport("problem", text, error.what, error.where, error.value, error.remedy)
        case EvaluatorBroken():
            message = f"the evaluator cannot be used: {text}"
            return ErrorReport("evaluator", message, error.what, error.where, remedy=error.remedy)
        case Misconfigured():
            return ErrorReport("misconfigured", text, text)
        case Unavailable():
            remedy = "Check that it is running and can be reached; `evoq doctor` says more."
            return ErrorReport("unavailable", f"{text}. {remedy}", text, remedy=remedy)
        case EmbeddedError():
            return ErrorReport("embedded", text, text)
        case KeyError() | IndexError():
            return _internal(error)
        case CommandError() | LookupError() | ValueError():
            return ErrorReport("failed", text, text)
        case OSError():
            path = str(error.filename or "")
            what = error.strerror or type(error).__name__
            remedy = "Check the path, its permissions and the free space."
            message = f"{path}: {what}. {remedy}" if path else f"{what}. {remedy}"
            return ErrorReport("system", message, what, path, remedy=remedy)
        case _:
            return _internal(error)


def _internal(error: BaseException) -> ErrorReport:
    remedy = "This is a defect: run it again with --debug and report what it says."
    what = f"internal error: {type(error).__name__}: {error}"
    return ErrorReport("internal", f"{what}. {remedy}", what, remedy=remedy)


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


def artifacts_document(artifacts: Mapping[str, str], chars: int = ARTIFACT_CHARS) -> dict[str, str]:
    """Returns the evaluator's texts, each within `chars` characters and without secrets."""
    from app.adapters.problems.evaluator_result import clipped
    from app.domain.secrets import redacted

    return {name: clipped(redacted(text), chars) for name, text in artifacts.items()}


def print_artifacts(
    subject: str, artifacts: Mapping[str, str], screen: Screen, *, whole: bool = False
) -> None:
    """Prints the beginning of each of a program's artifacts, or the whole of it."""
    chars = sys.maxsize if whole else SHOWN_CHARS
    texts = [item for item in artifacts_document(artifacts, chars).items() if item[1].strip()]
    for name, text in texts[:MOST_NAMES]:
        lines = text.strip().splitlines()
        screen.say(f"{subject}: artifact {name}: " + "\n    ".join(["", *lines][len(lines) == 1 :]))
    if len(texts) > MOST_NAMES:
        screen.say(f"{subject}: {len(texts) - MOST_NAMES} more artifacts; --json has them")


def counted(kinds: Mapping[str, int]) -> str:
    """Returns a number of proposals with its parts by kind, the most frequent first."""
    parts = sorted(kinds.items(), key=lambda entry: (-entry[1], entry[0]))
    named = ", ".join(f"{kind} {n}" for kind, n in parts)
    return f"{sum(kinds.values())} ({named})" if parts else "0"


def counted_measured(measured: int, entered: int) -> str:
    """Returns the numbers of proposals that were measured, and that a cell of the archive took."""
    return f"{measured} measured, of which {entered} entered the archive"
