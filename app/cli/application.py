"""The command line: the table of commands, and the one handler of errors.

A command is one module with one function: its parameters are the options, its docstring is the
help, and the section `Examples:` of the docstring ends the help.  The function imports what it
needs when it is called, so that `--help` stays fast.
"""

import inspect
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated, Any

import typer

from app.cli.answer import answer
from app.cli.branch import branch
from app.cli.change import change
from app.cli.check import check
from app.cli.compare import compare
from app.cli.costs import costs
from app.cli.dashboard import dashboard
from app.cli.doctor import doctor
from app.cli.evaluate import evaluate
from app.cli.export import export_best, export_checkpoint, export_programs, metrics, plot
from app.cli.mock_llm import mock_llm
from app.cli.new import new
from app.cli.output import (
    FAILED,
    USAGE_ERROR,
    WRONG_USAGE,
    ErrorReport,
    Screen,
    error_report,
    print_error,
)
from app.cli.play import play
from app.cli.prompt import prompt
from app.cli.replay import replay
from app.cli.report import report
from app.cli.run import resume, run
from app.cli.runs import cancel, list_runs, pause, watch
from app.cli.show import show
from app.cli.transfer import export_run, import_run
from app.cli.up import up
from app.logs import filter_secrets
from app.startup import start_quickly

NAME = "evoq"
_EXAMPLES = "\n\nExamples:\n"
"""Start of the last section of a command's docstring."""
_INTERRUPTED = 130
"""Typer's exit status after Ctrl-C; no command returns it."""

COMMANDS: dict[str, Callable[..., int | None]] = {
    "run": run,
    "resume": resume,
    "change": change,
    "watch": watch,
    "list-runs": list_runs,
    "show": show,
    "costs": costs,
    "pause": pause,
    "cancel": cancel,
    "export-best": export_best,
    "export-programs": export_programs,
    "export-checkpoint": export_checkpoint,
    "export": export_run,
    "import": import_run,
    "metrics": metrics,
    "plot": plot,
    "report": report,
    "compare": compare,
    "new": new,
    "check": check,
    "prompt": prompt,
    "answer": answer,
    "replay": replay,
    "play": play,
    "evaluate": evaluate,
    "branch": branch,
    "doctor": doctor,
    "up": up,
    "dashboard": dashboard,
    "mock-llm": mock_llm,
}


def application(name: str = "") -> typer.Typer:
    """Returns the command line: a command alone, or all of them.

    Typer spends two milliseconds on the parameters of each, whichever is called.

    Args:
      name: The command; all where there is none of that name.
    """
    line = typer.Typer(
        name=NAME,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    line.callback(help=_help(evoq), epilog=_examples(evoq))(evoq)
    for each in [name] if name in COMMANDS else COMMANDS:
        command = COMMANDS[each]
        line.command(each, help=_help(command), epilog=_examples(command))(command)
    return line


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        sys.stdout.write(f"{version('evoqueue')}\n")
        raise typer.Exit


def evoq(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Evolves programs: asks for children, measures them in a sandbox, keeps the best.

    Examples:
      evoq run examples/online_bin_packing
      evoq run my_problem --iterations 1000 --set search.islands=3
      evoq check my_problem
      evoq list-runs
    """


def _help(command: Callable[..., int | None]) -> str:
    """Returns a command's docstring without its examples.

    The lines of a paragraph are joined, since the terminal wraps them.
    """
    text = inspect.cleandoc(command.__doc__ or "").partition(_EXAMPLES)[0]
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n"))


def _examples(command: Callable[..., int | None]) -> str:
    """Returns the examples of a command's docstring, each on a line of its own."""
    lines = inspect.cleandoc(command.__doc__ or "").partition(_EXAMPLES)[2].splitlines()
    return "\n\n".join(["Examples:", *(line.strip() for line in lines)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage.

    Args:
      arguments: None means the arguments of this process.
    """
    start_quickly()
    filter_secrets()
    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is not signal.SIG_IGN:  # as `nohup` wants it
            signal.signal(name, _interrupt)
    try:
        status = status_of(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # a second one, while the first was handled
        status = FAILED
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # nothing is left to interrupt
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  a handler
    """Ends the command as Ctrl-C does."""
    if number == signal.SIGHUP:
        from app.cli.following import leave_terminal

        leave_terminal()
    raise KeyboardInterrupt


def status_of(arguments: list[str]) -> int:
    """Runs one command and returns its exit status; raises no error."""
    screen = Screen(json="--json" in arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an ASCII terminal must not end a run
            stream.reconfigure(errors="replace")
    try:
        line = application(arguments[0] if arguments else "")
        status = line(args=arguments, prog_name=NAME, standalone_mode=False)
        if status == _INTERRUPTED:
            raise KeyboardInterrupt
    except USAGE_ERROR as error:
        return _usage(error, screen)
    except (KeyboardInterrupt, typer.Abort):
        print_error(ErrorReport("interrupted", "interrupted", "interrupted"), screen)
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # the process's outermost edge: users never see a traceback
        if "--debug" in arguments:
            traceback.print_exc()
        report = error_report(error)
        print_error(report, screen)
        return report.code
    return status if isinstance(status, int) else 0


def _usage(error: Any, screen: Screen) -> int:
    """Prints a `ClickException` as any other error, with the help to read as its remedy."""
    what = error.format_message().rstrip(".")
    if not what:  # a command without arguments: its help is the message
        error.show()
    else:
        command = error.ctx.command_path if error.ctx else NAME
        remedy = f"`{command} --help` shows its arguments and options."
        end = "" if what.endswith("?") else "."
        report = ErrorReport("usage", f"{what}{end} {remedy}", what, remedy=remedy)
        print_error(report, screen)
    return WRONG_USAGE
