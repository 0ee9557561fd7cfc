"""The page of a lineage: a program, its parent, and so on to a seed."""

import asyncio

from nicegui import ui

from app.dashboard.pages.layout import Cell, Grid, Link, heading, links, page, say
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import number, shown
from app.domain.run import Run
from app.reports.metrics import MetricsRow


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/lineage/{program}", response_timeout=30)
    async def lineage_page(name: str, program: str) -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(f"Lineage in {run.name}"):
            heading("Lineage", 1)
            links([Link(run.name, f"/run/{run.id}"), Link("Tree", f"/run/{run.id}/tree")])
            try:
                line = await asyncio.to_thread(sources.reader.lineage, run, program)
            except LookupError as error:
                say(shown(f"{error}."))
                return
            tail = await sources.tail(run)
            records = {best.program for best in tail.course.improvements}
            say(
                f"{len(line)} programs, the newest first; ★ marks those that were the best of "
                f"the run when they were admitted.",
                "grey",
            )
            grid = Grid(
                ("", "fitness", "gain", "operator", "settled after", "program", "changes"),
                name="Lineage",
                empty="This program was not admitted to the archive, so it has no lineage in it.",
            )
            grid.show(
                [
                    _cells(run, row, line[n + 1] if n + 1 < len(line) else None, records)
                    for n, row in enumerate(line)
                ]
            )


def _cells(run: Run, row: MetricsRow, parent: MetricsRow | None, records: set[str]) -> list[Cell]:
    gain = ""
    if parent is not None and row.fitness is not None and parent.fitness is not None:
        gain = f"{row.fitness - parent.fitness:+.4g}"
    program = row.program or ""
    return [
        "★" if program in records else "",
        number(row.fitness),
        gain,
        "seed" if row.ordinal < 0 else row.operator,
        f"{row.seconds:.1f} s",
        Link(program[:12], f"/run/{run.id}/program/{program}"),
        shown(row.detail)[:300],
    ]
