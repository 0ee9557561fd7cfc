"""`evoq apply`: the best program of several files, committed to a folder."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.branch import return_to_the_shells_folder
from app.cli.export import best_of, require_several
from app.cli.options import Debug, Json, RunName
from app.cli.output import Screen
from app.client.notes import CommandError
from app.client.target import open_run, stored_problem
from app.patterns.errors import BranchingError, ConflictError
from app.patterns.programs import commit_program
from app.reports.summary import summarise


def apply(
    name: RunName,
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The folder of the program, as `root` names it.")
    ],
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Commits the best program of a run, which has several files, to a folder in one step.

    The files that change must be as they are in the first start program. Otherwise nothing is
    written, and those that differ are named.

    Examples:
      evoq apply spelling-1 examples/spelling/library
    """
    screen = Screen(json=as_json)
    with open_run(name) as (ledger, run):
        problem = stored_problem(ledger.store, run)
        require_several(problem, run, "RUN")
        summary = summarise(ledger.store, run.id, problem)
    best = best_of(summary)
    return_to_the_shells_folder()
    try:
        paths = commit_program(Path(folder), problem.seeds[0], best.program)
    except ConflictError as error:
        raise CommandError(
            f"{folder}: nothing was written, because files differ from those of the first seed of "
            f"{run.name}, or changed meanwhile: {', '.join(error.paths)}"
        ) from error
    except BranchingError as error:
        raise CommandError(str(error)) from error
    if paths:
        screen.say(f"{folder}: committed {', '.join(paths)}; shells in it need `cd .` now")
    else:
        screen.say(f"{folder}: has the files of the best program already")
    screen.answer(
        {
            "run": run.name,
            "program": best.measured.program,
            "fitness": best.measured.fitness,
            "folder": folder,
            "files": paths,
        }
    )
