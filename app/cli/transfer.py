"""`evoq export` and `import`: a run as a file that travels, or its best program as a patch."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.adapters.problems.loading import reload
from app.cli.export import best_of, new_file, require_several, writing
from app.cli.options import Debug, Json, RunName
from app.cli.output import Screen
from app.client.run_names import require_name
from app.client.target import find_target, open_ledger, open_run, stored_problem
from app.config.layers import UsageError
from app.ports.copies import BadCopy
from app.reports.ledger_file import read_ledger, verified, write_ledger
from app.reports.patch import changes_of
from app.reports.summary import summarise

SUFFIX = ".ledger.gz"


def export_run(
    name: RunName,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "--file",
            metavar="FILE",
            help="RUN.ledger.gz by default; of a patch, standard output.",
        ),
    ] = None,
    patch: Annotated[
        bool,
        typer.Option("--patch", help="The best program of several files, as a patch for git."),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Writes the whole ledger of a run to one file, for `evoq import`.

    Texts and settings lose what looks like a secret; programs and the problem's files stay as they
    are. With --patch, writes instead how the best program of several files differs from the first
    start program. `patch -p1` in the program's folder applies it, and in a git repository around
    that folder `git apply --directory=PATH/TO/FOLDER`.

    Examples:
      evoq export online_bin_packing-1
      evoq export 1 --out packing.ledger.gz
      evoq export spelling-1 --patch --out better.patch
    """
    screen = Screen(json=as_json)
    if patch:
        _export_patch(name, out, screen)
        return
    with open_run(name) as (ledger, run):
        path = Path(out or f"{run.name}{SUFFIX}")
        with new_file(path) as file:
            rows = write_ledger(ledger.store, run, file)
    screen.say(f"{path}: {rows} rows, {path.stat().st_size} bytes")
    screen.answer({"run": run.name, "rows": rows, "out": str(path)})


def _export_patch(name: str, out: str | None, screen: Screen) -> None:
    with open_run(name) as (ledger, run):
        problem = stored_problem(ledger.store, run)
        require_several(problem, run, "--patch")
        summary = summarise(ledger.store, run.id, problem)
    best = best_of(summary)
    changes = changes_of(problem.seeds[0], best.program)
    text = "".join(change.patch for change in changes)
    if out:
        with writing(Path(out)) as file:
            file.write(text)
        screen.say(f"{Path(out)}: {len(changes)} files, fitness {summary.best_text}")
    elif not screen.json:
        sys.stdout.write(text)
    if not changes:
        screen.note("notice: the patch is empty: the best program is the first start program")
    screen.answer(
        {
            "run": run.name,
            "program": best.measured.program,
            "fitness": best.measured.fitness,
            "files": [change.path for change in changes],
            "patch": text,
            "out": str(Path(out)) if out else None,
        }
    )


def import_run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that `evoq export` wrote.")],
    name: Annotated[
        str | None, typer.Option("--name", help="The run's name here; its own by default.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Adds the run of a file to this ledger; a broken file, or a name that is taken, adds nothing.

    Examples:
      evoq import online_bin_packing-1.ledger.gz
      evoq import packing.ledger.gz --name packing-of-june
    """
    screen, path = Screen(json=as_json), Path(file)
    require_name(name)
    try:
        copy = verified(path, reload)
        require_name(name or copy.name)
        with open_ledger(find_target()) as ledger:
            run = read_ledger(ledger.store, copy, name or copy.name)
    except BadCopy as error:
        raise UsageError(
            f"the file cannot be imported: {error}",
            where="FILE",
            value=file,
            remedy="Nothing was added. If the file is damaged, export the run again.",
        ) from error
    screen.say(f"{run.name}: {copy.rows} rows, {run.state.value}; `evoq show {run.name}`")
    screen.answer({"run": run.name, "id": run.id, "rows": copy.rows, "state": run.state.value})
