"""The command line: every command by name, and the one handler of errors."""

import inspect
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from app.cli.commands import COMMANDS
from app.cli.examples import examples
from app.cli.faults import FAILED, MISUSED, USAGE_ERROR, Fault, fault_of, print_document, report
from app.logs import filter_secrets

NAME = "evoq"
_INTERRUPTED = 130
"""What Typer makes of Ctrl-C; no command of ours returns it."""

application = typer.Typer(
    name=NAME,
    help="Evolves programs: asks for children, measures them in a sandbox, keeps the best.",
    epilog=examples(""),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"{version('evoqueue')}\n")
        raise typer.Exit


@application.callback(epilog=examples(""))
def evoq(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Holds what the command itself takes."""


def _described(command: Callable[..., None]) -> str:
    """Returns a command's docstring with its lines joined: the terminal's width folds them."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


for _name, _command in COMMANDS.items():
    application.command(_name, help=_described(_command), epilog=examples(_name))(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage.

    Args:
      arguments: None takes the program's own.
    """
    filter_secrets()
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(status_of(given))


def status_of(given: list[str]) -> int:
    """Runs one command and returns its exit status; no error passes."""
    as_json, debug = "--json" in given, "--debug" in given
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an ASCII terminal must not end a run
            stream.reconfigure(errors="replace")
    try:
        status = application(args=given, prog_name=NAME, standalone_mode=False)
        if status == _INTERRUPTED:
            raise KeyboardInterrupt
    except USAGE_ERROR as error:
        return _usage(error, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        report(Fault("interrupted", "interrupted", "interrupted"), as_json=as_json)
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # the program's outermost edge: a person never sees a traceback
        if debug:
            traceback.print_exc()
        fault = fault_of(error)
        report(fault, as_json=as_json)
        return fault.code
    return status if isinstance(status, int) else 0


def _usage(error: Any, *, as_json: bool) -> int:
    """Shows a `ClickException`: usage and message, and the document if one was asked for."""
    error.show()
    if as_json:
        what = error.format_message()
        print_document(Fault("usage", what, what, code=MISUSED))
    return MISUSED
