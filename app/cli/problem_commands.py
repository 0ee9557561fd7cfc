"""The commands that look at a problem, and their options; see `app.cli.commands`."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import Assignments, Config, Debug, Json, Problem, Strict
from app.cli.screen import Screen


def check(
    problem: Problem,
    config: Config = None,
    assignments: Assignments = None,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Loads a problem, evaluates its seeds in the sandbox, and says what was understood.

    Needs no service. Exit status 1 when a run of it could not begin.
    """
    from app.cli.check import check as act

    screen = Screen(json=as_json)
    told = Path(config) if config else None
    raise typer.Exit(
        act(tuple(map(Path, problem)), told, tuple(assignments or ()), strict=strict, screen=screen)
    )


def prompt(
    problem: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROBLEM]...", help="As for `evoq run`; the run's own otherwise."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Show this run's programs.")
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            "--program", metavar="ID", help="The parent: beginning of an id; a file without --run."
        ),
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="NAME", help="Whose prompt; diff otherwise.")
    ] = None,
    island: Annotated[
        int, typer.Option("--island", metavar="N", min=0, help="With --run: whose turn it is.")
    ] = 0,
    config: Config = None,
    assignments: Assignments = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Shows what a model would be asked; asks nobody.

    Without --run the parent is the problem's first seed, unmeasured, and no service is needed. With
    --run it is what comes next there; a PROBLEM beside it shows its present templates over the
    run's programs.
    """
    from app.cli.prompt import Asked, show

    asked = Asked(
        paths=tuple(map(Path, problem or ())),
        run=run,
        program=program,
        operator=operator,
        island=island,
        config=Path(config) if config else None,
        assignments=tuple(assignments or ()),
    )
    show(asked, Screen(json=as_json))


def evaluate(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem folder.")],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Programs to evaluate.")],
    sandbox: Annotated[
        str | None, typer.Option("--sandbox", metavar="NAME", help="process, docker or auto.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="guarded or compatible.")
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Puts program files through a problem's evaluation, one after the other in one sandbox.

    Needs no service. A program that fails is an answer, not an error: the exit status is 0 when
    every file was put through.
    """
    from app.cli.check import evaluate as act

    told = list(assignments or ())
    told += [f"sandbox.backend={sandbox}"] if sandbox else []
    told += [f"sandbox.mode={mode}"] if mode else []
    act(
        Path(problem),
        tuple(map(Path, files)),
        Path(config) if config else None,
        tuple(told),
        screen=Screen(json=as_json),
    )
