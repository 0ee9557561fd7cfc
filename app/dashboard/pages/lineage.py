"""The page of a lineage: a program, its parent, and so on to a seed."""

import asyncio

from nicegui import ui

from app.dashboard.pages.layout import (
    Cell,
    Grid,
    Link,
    keep_live,
    links,
    page,
    program_link,
    say,
    set_text,
)
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import gain, shown
from app.domain.digits import number_texts
from app.domain.run import Run
from app.domain.search.strategy import Ranking
from app.reports.metrics import MetricsRow
from app.reports.text import duration

SHOWN = 60
"""Programs that are drawn at first, and at each wish for older ones."""


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/lineage/{program}", response_timeout=30)
    async def lineage_page(name: str, program: str) -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(f"Lineage in {run.name}"):
            view = _LineageView(sources, run, program)
            keep_live(view.refresh)


class _LineageView:
    """The elements of one viewer's page."""

    def __init__(self, sources: Sources, run: Run, program: str) -> None:
        """Draws them without a lineage."""
        self._sources, self._run, self._program = sources, run, program
        self._rows: list[list[Cell]] | None = None
        self._shown = 0
        links([Link(run.name, f"/run/{run.id}"), Link("Tree", f"/run/{run.id}/tree")])
        self._said = say("The lineage is read.", "grey")
        self._grid = Grid(
            ("", "program", "fitness", "gain", "operator", "settled after", "changes"),
            name="Lineage",
            numbers=("fitness", "gain", "settled after"),
            words="changes",
            empty="This program was not measured to the end, so it has no lineage.",
        )
        self._older = ui.button("Show older ones", on_click=self._show_more)
        self._older.props("outline dense no-caps").set_visibility(False)

    async def refresh(self) -> None:
        """Reads the lineage once: what has been admitted stays as it is."""
        if self._rows is not None:
            return
        run = self._run
        try:
            line = await asyncio.to_thread(self._sources.reader.lineage, run, self._program)
        except LookupError as error:
            self._rows = []
            set_text(self._said, shown(f"{error}."))
            return
        tail = await self._sources.tail(run)
        records = {best.program for best in tail.course.improvements}
        set_text(
            self._said,
            f"{len(line)} programs, the newest first; ★ marks those that were the best of "
            f"the run when they were measured.",
        )
        progress = tail.course.progress
        texts = number_texts([row.fitness for row in line], progress.told_apart)
        self._rows = [
            _cells(run, row, texts[n], line[n + 1] if n + 1 < len(line) else None, records)
            for n, row in enumerate(line)
        ]
        self._show_more()

    def _show_more(self) -> None:
        rows = self._rows or []
        self._shown += SHOWN
        self._grid.show(rows[: self._shown])
        self._older.set_visibility(len(rows) > self._shown)


def _cells(
    run: Run, row: MetricsRow, fitness: str, parent: MetricsRow | None, records: set[str]
) -> list[Cell]:
    comparable = parent if run.ranking is Ranking.ABSOLUTE else None
    program = row.program or ""
    return [
        "★" if program in records else "",
        program_link(run.id, program),
        fitness,
        gain(row.fitness, comparable.fitness) if comparable else "",
        "seed" if row.ordinal < 0 else row.operator,
        duration(row.seconds),
        shown(row.detail)[:300],
    ]
