"""`evoq export` and `import`: a run as a file that travels from one ledger to another."""

from pathlib import Path
from typing import Annotated

import typer

from app.adapters.problems.loading import reload
from app.cli.export import new_file
from app.cli.options import Debug, Json, RunName
from app.cli.output import Screen
from app.client.run_names import require_name
from app.client.target import find_target, open_ledger, open_run
from app.config.layers import UsageError
from app.ports.records import BadCopy
from app.reports.ledger_file import read_ledger, verified, write_ledger

SUFFIX = ".ledger.gz"


def export_run(
    name: RunName,
    out: Annotated[
        str | None,
        typer.Option("--out", "--file", metavar="FILE", help="RUN.ledger.gz by default."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Writes the whole ledger of a run to one file, for `evoq import`.

    Texts and settings lose what looks like a secret; programs and the problem's files stay as they
    are.

    Examples:
      evoq export online_bin_packing-1
      evoq export 1 --out packing.ledger.gz
    """
    screen = Screen(json=as_json)
    with open_run(name) as (ledger, run):
        path = Path(out or f"{run.name}{SUFFIX}")
        with new_file(path) as file:
            rows = write_ledger(ledger.store, run, file)
    screen.say(f"{path}: {rows} rows, {path.stat().st_size} bytes")
    screen.answer({"run": run.name, "rows": rows, "out": str(path)})


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
