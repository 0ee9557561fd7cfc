"""The command line: the table of commands, and the one handler of errors.

A command is a function: its parameters are the options, its docstring is the help, and the section
`Examples:` of the docstring ends the help.  Its module is imported when the command is called, so
that the list of commands appears at once.
"""

import inspect
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Annotated, Any

import typer

from app.cli.commands import COMMANDS, imported
from app.cli.interruption import leave_terminal
from app.cli.output import FAILED, USAGE_ERROR, WRONG_USAGE, ErrorReport, Screen, print_error
from app.logs import filter_secrets
from app.startup import start_quickly

NAME = "evoq"
_EXAMPLES = "\n\nExamples:\n"
"""Start of the last section of a command's docstring."""
_INTERRUPTED = 130
"""Typer's exit status after Ctrl-C; no command returns it."""


def application(name: str = "") -> typer.Typer:
    """Returns the command line: one command, or the list of all of them.

    Args:
      name: The command; where there is none of that name, the list.
    """
    line = _group(evoq, {})
    if name not in COMMANDS:
        for each, listed in COMMANDS.items():
            line.command(each, help=listed.help)(_listed)
        return line
    listed = COMMANDS[name]
    command = imported(listed.place)
    if listed.below:
        line.add_typer(_group(command, imported(listed.below)()), name=name)
    else:
        _add(line, name, command)
    return line


def _group(
    named: Callable[..., object], commands: Mapping[str, Callable[..., object]]
) -> typer.Typer:
    """Returns commands below a word, whose help is the docstring of `named`."""
    group = typer.Typer(
        name=NAME,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    group.callback(help=_help(named), epilog=_examples(named))(named)
    for name, command in commands.items():
        _add(group, name, command)
    return group


def _add(group: typer.Typer, name: str, command: Callable[..., object]) -> None:
    group.command(name, help=_help(command), epilog=_examples(command))(command)


def _listed() -> None:
    """Stands for a command in the list of commands, which is read and never called."""


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


def _help(command: Callable[..., object]) -> str:
    """Returns a command's docstring without its examples.

    The lines of a paragraph are joined, since the terminal wraps them.
    """
    text = inspect.cleandoc(command.__doc__ or "").partition(_EXAMPLES)[0]
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n"))


def _examples(command: Callable[..., object]) -> str:
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
        # `nohup` makes a process ignore a signal, and the process goes on ignoring it.
        if signal.getsignal(name) is not signal.SIG_IGN:
            signal.signal(name, _interrupt)
    try:
        status = status_of(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        # A second interruption arrived while the first was handled.
        status = FAILED
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # No work is left to interrupt.
        signal.signal(name, signal.SIG_IGN)
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  a handler
    """Ends the command as Ctrl-C does."""
    if number == signal.SIGHUP:
        leave_terminal()
    raise KeyboardInterrupt


def status_of(arguments: list[str]) -> int:
    """Runs one command and returns its exit status; raises no error."""
    screen = Screen(json="--json" in arguments)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that encodes ASCII must not end a run.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        line = application(_command_of(arguments))
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
    except Exception as error:
        # This is the outermost edge of the process: users never see a traceback.
        if "--debug" in arguments:
            traceback.print_exc()
        # Its classes are those of the whole product.
        from app.cli.errors import error_report

        report = error_report(error)
        print_error(report, screen)
        return report.code
    return status if isinstance(status, int) else 0


def _command_of(arguments: Sequence[str]) -> str:
    """Returns the name of the command that is called, or that a shell completes; else ""."""
    words = arguments or os.environ.get("COMP_WORDS", "").split()[1:]
    return words[0] if words else ""


def _usage(error: Any, screen: Screen) -> int:
    """Prints a `ClickException` as any other error, with the help to read as its remedy."""
    what = error.format_message().rstrip(".")
    # The help is the message of a command without arguments.
    if not what:
        error.show()
    else:
        command = error.ctx.command_path if error.ctx else NAME
        remedy = f"`{command} --help` shows its arguments and options."
        end = "" if what.endswith("?") else "."
        report = ErrorReport("usage", f"{what}{end} {remedy}", what, remedy=remedy)
        print_error(report, screen)
    return WRONG_USAGE
