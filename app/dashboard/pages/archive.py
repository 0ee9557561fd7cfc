"""The page of an archive: a heat map of its grid, and its cells as a table."""

import math
from functools import partial
from itertools import combinations

from nicegui import ui

from app.dashboard.pages.charts import grid_map
from app.dashboard.pages.layout import (
    Cell,
    Chart,
    Link,
    keep_live,
    links,
    opener,
    page,
    program_link,
    say,
    set_text,
    table,
)
from app.dashboard.pages.sources import Sources
from app.dashboard.reads import ArchiveDocument, CellDocument
from app.domain.digits import number_texts
from app.domain.run import Run

MOST_ROWS = 50


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/archive", response_timeout=30)
    async def archive_page(
        name: str, island: int | None = None, across: int = 0, up: int = 1
    ) -> None:
        run = await sources.run(name)
        if run is None:
            return
        if island is not None and not 0 <= island < run.islands:
            island = None
        with page(f"Archive of {run.name}"):
            await _draw(sources, run, island, across, up)


async def _draw(sources: Sources, run: Run, island: int | None, across: int, up: int) -> None:
    base = f"/run/{run.id}"
    archive = await sources.archive(run, island)
    gridded = bool(archive.axes) and all(_on_grid(cell, archive) for cell in archive.cells)
    n = len(archive.axes)
    across = across if 0 <= across < n else 0
    other = up if 0 <= up < n and up != across else next((i for i in range(n) if i != across), None)
    here = f"{base}/archive?across={across}" + ("" if other is None else f"&up={other}")
    links(
        [
            Link(run.name, base),
            Link("all islands" + _mark(island is None), here),
            *(
                Link(f"island {number}{_mark(island == number)}", f"{here}&island={number}")
                for number in range(min(run.islands, 64))
            ),
        ]
    )
    if n > 2:
        at = "" if island is None else f"&island={island}"
        names = [axis.name for axis in archive.axes]
        links(
            [
                Link(
                    f"{names[a]} × {names[b]}{_mark((a, b) == (across, other))}",
                    f"{base}/archive?across={a}&up={b}{at}",
                )
                for a, b in combinations(range(n), 2)
            ]
        )
    filled = say("", "grey")
    chart = None
    if gridded:
        chart = Chart("Best fitness of each cell", opener(run.id, 3))
    else:
        say("The cells of this recipe are not a grid: the table names them.", "grey")
    grid = table(
        "Fittest cells",
        ("island", "cell", "fitness", "generation", "program"),
        "No program has entered the archive yet.",
        numbers=("cell", "fitness", "generation"),
    )

    async def refresh() -> None:
        now = await sources.archive(run, island)
        set_text(filled, _coverage(now))
        if chart is not None and now.axes:
            chart.show(partial(grid_map, now, island, across, other))
        fittest = sorted(now.cells, key=lambda cell: -cell.fitness)[:MOST_ROWS]
        progress = (await sources.tail(run)).course.progress
        texts = number_texts([cell.fitness for cell in fittest], progress.told_apart)
        grid.show(list(map(partial(_cells, run), fittest, texts)))

    keep_live(refresh, 5.0)


def _coverage(archive: ArchiveDocument) -> str:
    """Returns how many cells are occupied, and how many there are."""
    sizes = archive.sizes[:64]
    of = f" of {math.prod(axis.bins for axis in archive.axes):,}" if archive.axes else ""
    if len(sizes) == 1:
        return f"Occupied cells: {sizes[0]:,}{of}."
    counts = ", ".join(f"{size:,}" for size in sizes)
    return f"Occupied cells{of}: {counts} on islands 0 to {len(sizes) - 1}."


def _mark(here: bool) -> str:
    return " ●" if here else ""


def _on_grid(cell: CellDocument, archive: ArchiveDocument) -> bool:
    return len(cell.cell) == len(archive.axes) and all(isinstance(bin_, int) for bin_ in cell.cell)


def _cells(run: Run, cell: CellDocument, fitness: str) -> list[Cell]:
    return [
        str(cell.island),
        ", ".join(str(part) for part in cell.cell) or "the only one",
        fitness,
        str(cell.generation),
        program_link(run.id, cell.program),
    ]
