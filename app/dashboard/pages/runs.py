"""The page of all runs: state, progress, best, cost, and what each waits for."""

from nicegui import ui

from app.dashboard.pages.layout import Cell, Grid, Link, heading, keep_live, page, say
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import duration, number, shown, usd
from app.dashboard.reads import RunRow

COLUMNS = ("run", "problem", "state", "settled", "best", "cost", "started", "waits for")


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/", response_timeout=30)
    async def runs_page() -> None:
        with page("Runs"):
            heading("Runs", 1)
            say("The newest hundred, newest first.", "grey")
            grid = Grid(
                COLUMNS,
                name="Runs",
                empty="No runs yet: `evoq run PROBLEM` starts one, for instance "
                "`evoq run examples/online_bin_packing`.",
            )

            async def refresh() -> None:
                grid.show([_cells(row) for row in await sources.runs()])

            keep_live(refresh, 2.0)


def _cells(row: RunRow) -> list[Cell]:
    share = row.settled / row.budget if row.budget else 0.0
    return [
        Link(row.name, f"/run/{row.id}"),
        row.problem,
        row.state,
        f"{row.settled} of {row.budget} ({share:.0%})",
        number(row.best),
        usd(row.cost_usd) if row.cost_usd else "–",
        f"{duration(row.age_seconds)} ago",
        shown(row.waiting or row.reason),
    ]
