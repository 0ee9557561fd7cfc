"""The page that compares runs: their curves in one chart, and the settings that differ."""

import asyncio
import json

from nicegui import ui

from app.dashboard.pages.charts import curves
from app.dashboard.pages.layout import Cell, Grid, Link, heading, keep_live, links, page, say
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import duration, number, shown
from app.dashboard.reads import RunRow
from app.domain.run import Run

MOST_RUNS = 8
"""As many as there are colours that can be told apart."""


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/compare", response_timeout=30)
    async def compare_page(runs: str = "") -> None:
        rows = await sources.runs()
        wanted = [part for part in runs.split(",") if part][:MOST_RUNS]
        chosen = [row for row in rows if str(row.id) in wanted or row.name in wanted]
        with page("Compare runs"):
            heading("Compare runs", 1)
            _choose(rows, chosen)
            if chosen:
                await _draw(sources, [row.id for row in chosen])
            else:
                say("Choose runs above: their curves are drawn in one chart.", "grey")


def _choose(rows: list[RunRow], chosen: list[RunRow]) -> None:
    """Draws a link for each run that adds it to those that are compared, or takes it away."""
    if not rows:
        say("No runs yet: `evoq run PROBLEM` starts one.", "grey")
        return
    say(f"Each name adds a run, or takes it away; {MOST_RUNS} at most.", "grey")
    ids = [row.id for row in chosen]
    entries = []
    for row in rows[:40]:
        after = [run for run in ids if run != row.id] + ([] if row.id in ids else [row.id])
        name = f"{row.name}{' ●' if row.id in ids else ''}"
        entries.append(Link(name, f"/compare?runs={','.join(map(str, after))}"))
    links(entries)


async def _draw(sources: Sources, ids: list[int]) -> None:
    runs: list[Run] = [await asyncio.to_thread(sources.reader.run, str(each)) for each in ids]
    problems = {run.problem for run in runs}
    if len(problems) > 1:
        say("These runs have different problems: their fitness is not comparable.", "notice")
    chart = ui.echart(curves({}, {})).classes("chart")
    chart.props('role=img aria-label="Best fitness so far of each run"')
    columns = ("run", "problem", "best", "settled", "admitted", "failed", "cut", "time of the best")
    grid = Grid(columns, name="Runs", empty="")
    heading("Settings that differ")
    settings = Grid(
        ("setting", *(run.name for run in runs)),
        name="Settings that differ",
        empty="The settings of these runs are the same.",
    )
    found = await asyncio.to_thread(sources.reader.settings, runs)
    settings.show(
        [
            [key, *(shown(json.dumps(values[run.name], default=str))[:200] for run in runs)]
            for key, values in found.items()
        ]
    )
    drawn = -1

    async def refresh() -> None:
        nonlocal drawn
        tails = [await sources.tail(run) for run in runs]
        if sum(tail.seq for tail in tails) == drawn:
            return
        drawn = sum(tail.seq for tail in tails)
        courses = {run.name: tail.course for run, tail in zip(runs, tails, strict=True)}
        chart.options.clear()
        chart.options.update(
            curves(
                {name: course.improvements for name, course in courses.items()},
                {name: course.progress.done for name, course in courses.items()},
            )
        )
        chart.update()
        rows: list[list[Cell]] = []
        for run in runs:
            course = courses[run.name]
            progress, last = course.progress, course.improvements[-1:]
            rows.append(
                [
                    Link(run.name, f"/run/{run.id}"),
                    run.problem_name,
                    number(progress.best),
                    str(progress.done),
                    str(progress.admitted),
                    str(sum(progress.failures.values())),
                    str(sum(progress.cuts.values())),
                    duration(last[0].seconds) if last else "–",
                ]
            )
        grid.show(rows)

    await keep_live(refresh, 2.0)
