"""The one place where errors become messages and exit codes."""

import json
import sys
from dataclasses import asdict, dataclass

import typer
from rich.console import Console

DONE, FAILED, MISUSED = 0, 1, 2

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""`ClickException`, wherever this version of Typer keeps it."""


class Failed(Exception):
    """A command could not do what it was asked; the message says what, where and the remedy."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as it is shown.

    Attributes:
      kind: A word for programs.
      message: What a person reads: what, where, the value, the remedy.
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
        """Returns the fault as JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "code"}


def fault_of(error: BaseException) -> Fault:
    """Returns how an error is shown; one that is not expected is called an internal error."""
    from app.config.layers import UsageError
    from app.domain.problem import EvaluatorBroken, ProblemError
    from app.embedded.children import EmbeddedError
    from app.ports.protocols import Misconfigured, Unavailable

    text = str(error)
    match error:
        case UsageError():
            return Fault("usage", text, error.what, error.where, error.value, error.remedy, MISUSED)
        case ProblemError():
            return Fault("problem", text, error.what, error.where, error.value, error.remedy)
        case EvaluatorBroken():
            return Fault("evaluator", f"the evaluator cannot be used: {text}", text)
        case Misconfigured():
            return Fault("misconfigured", text, text)
        case Unavailable():
            remedy = "Check that it is running and can be reached; `evoq doctor` says more."
            return Fault("unavailable", f"{text}. {remedy}", text, remedy=remedy)
        case EmbeddedError():
            return Fault("embedded", text, text)
        case KeyError() | IndexError():
            return _internal(error)
        case Failed() | LookupError() | ValueError():
            return Fault("failed", text, text)
        case OSError():
            place = str(error.filename or "")
            what = error.strerror or type(error).__name__
            remedy = "Check the path, its permissions and the free space."
            told = f"{place}: {what}. {remedy}" if place else f"{what}. {remedy}"
            return Fault("system", told, what, place, remedy=remedy)
        case _:
            return _internal(error)


def _internal(error: BaseException) -> Fault:
    remedy = "This is a defect: run it again with --debug and report what it says."
    what = f"internal error: {type(error).__name__}: {error}"
    return Fault("internal", f"{what}. {remedy}", what, remedy=remedy)


def report(fault: Fault, *, as_json: bool) -> None:
    """Prints a fault: one message on standard error, and the document if one was asked for."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"error: {fault.message}", markup=False)
    if as_json:
        print_document(fault)


def print_document(fault: Fault) -> None:
    """Prints a fault as the one JSON document."""
    sys.stdout.write(json.dumps({"error": fault.document()}, indent=2) + "\n")
    sys.stdout.flush()
