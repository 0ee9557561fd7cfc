"""`evoq report`: one HTML file on one run or several."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.export import writing
from app.cli.options import Debug, Json
from app.cli.output import Screen
from app.client.target import find_run, open_run, stored_problem
from app.reports.decoration import NotMade
from app.reports.report import report as report_on
from app.reports.summary import summarise


def report(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Names or numbers of runs.")],
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="The file; report-RUN.html by default."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Writes a self-contained HTML report: curves, archive, lineage, failures, cost, settings.

    Examples:
      evoq report online_bin_packing-1
      evoq report 1 2 --out both.html
    """
    screen = Screen(json=as_json)
    with open_run(names[0]) as (ledger, first):
        store, runs = ledger.store, []
        for run in (first, *(find_run(store, name) for name in names[1:])):
            problem = stored_problem(store, run)
            runs.append((summarise(store, run.id, problem), problem))
        path = Path(out or f"report-{first.name}.html")
        with writing(path) as file:
            missing: list[NotMade] = []
            file.write(report_on(store, runs, missing.append))
    screen.say(str(path))
    notices = [f"{each.text}; the report says so in its place" for each in missing]
    for text in notices:
        screen.note(f"notice: {text}")
    names = [summary.run.name for summary, _ in runs]
    screen.answer({"runs": names, "out": str(path), "notices": notices})
