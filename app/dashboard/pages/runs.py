"""The page of all runs: state, progress, best, cost, and what each waits for."""

from nicegui import ui

from app.dashboard.pages.layout import Cell, Grid, Link, Mark, keep_live, page, say
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import shown
from app.domain.digits import number_texts
from app.reports.runs import RunRow
from app.reports.text import duration, usd

NUMBERS = ("best", "settled", "budget", "rate", "cost", "started")
COLUMNS = ("run", "state", *NUMBERS, "problem", "waits for, ended by")


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/", response_timeout=30)
    async def runs_page() -> None:
        with page("Runs"):
            say("The newest hundred, newest first.", "grey")
            grid = Grid(
                COLUMNS,
                name="Runs",
                empty="No runs yet: `evoq run PROBLEM` starts one, for instance "
                "`evoq run examples/online_bin_packing`.",
                numbers=NUMBERS,
                words=COLUMNS[-1],
            )

            async def refresh() -> None:
                rows = await sources.runs()
                bests = number_texts([row.best for row in rows], [row.start for row in rows])
                grid.show(list(map(_cells, rows, bests)))

            keep_live(refresh, 2.0)


def _cells(row: RunRow, best: str) -> list[Cell]:
    share = f" ({row.iterations / row.budget:.0%})" if row.budget else ""
    return [
        Link(row.run, f"/run/{row.id}"),
        Mark(row.state),
        best,
        f"{row.iterations:,}{share}",
        f"{row.budget:,}",
        f"{row.rate:.3g}/s" if row.rate else "–",
        usd(row.cost_usd) if row.cost_usd else "–",
        f"{duration(row.age_seconds)} ago",
        row.problem,
        shown(row.waiting or row.reason),
    ]
