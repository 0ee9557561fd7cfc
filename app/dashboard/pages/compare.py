"""The page that compares: arms of an `evoq compare` as bands, or runs as curves in one chart."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import urlencode

from nicegui import ui

from app.dashboard.pages.charts import bands, curves
from app.dashboard.pages.layout import (
    Cell,
    Chart,
    Grid,
    Link,
    heading,
    keep_live,
    late,
    links,
    page,
    say,
    table,
)
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import shown
from app.domain.digits import number_texts
from app.domain.run import Run
from app.ports.runs import ComparedRuns
from app.reports.bands import ArmBand, BandPoint, ProblemBands, settings_that_differ
from app.reports.text import duration

MOST_RUNS = 8
"""As many as there are colours that can be told apart."""


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/compare", response_timeout=30)
    async def compare_page(runs: str = "", of: str = "") -> None:
        if of:
            with page(f"Comparison {of}"):
                async with late():
                    await _draw_comparison(sources, of)
            return
        wanted = [part for part in runs.split(",") if part][:MOST_RUNS]
        with page("Compare runs"):
            async with late():
                newest = await sources.newest()
                chosen = [run for run in newest if str(run.id) in wanted or run.name in wanted]
                _comparisons(await sources.comparisons())
                _choose(newest, chosen)
                if chosen:
                    await _draw(sources, chosen)
                else:
                    say("Choose runs above: their curves are drawn in one chart.", "grey")


async def _draw_comparison(sources: Sources, name: str) -> None:
    try:
        found = await sources.comparison(name)
    except LookupError:
        say(shown(f"This ledger has no comparison {name!r}. The page “Compare” lists them."))
        return
    views = [_ProblemView(problem, found.budget) for problem in found.problems]
    arms = list(dict.fromkeys(arm for problem in found.problems for arm in problem.arms))
    empty = "The settings of the arms are the same."
    settings = table("Settings that differ", ("setting", *arms), empty)
    _show_settings(settings, found.differing_settings, arms)
    left_out = table("Runs that are left out", ("run", "state"), "None.")

    async def refresh() -> None:
        current = await sources.comparison(name)
        for view, problem in zip(views, current.problems, strict=False):
            view.show(problem)
        left_out.show(
            [[Link(run, f"/run/{run}"), state] for run, state in current.unfinished.items()]
        )

    keep_live(refresh, 5.0)


class _ProblemView:
    """The arms of a comparison on one problem."""

    def __init__(self, problem: ProblemBands, budget: int) -> None:
        """Draws them without values."""
        heading(shown(problem.problem))
        say(
            f"Each run has {budget:,} proposals. A line is the median of the best so far "
            f"over the finished runs of an arm, its band reaches from quartile to quartile. "
            f"Beside each arm stands how probably a run of the first one ends above one of it, "
            f"with the 95 % interval.",
            "grey",
        )
        self._chart = Chart("Best fitness so far of each arm")
        columns = ("arm", "finished runs", "median", "quartiles", "first arm above it")
        self._grid = Grid(
            columns, name=f"Arms on {problem.problem}", empty="", numbers=columns[1:3]
        )
        self._drawn: ProblemBands | None = None

    def show(self, problem: ProblemBands) -> None:
        """Changes what has changed."""
        if problem == self._drawn:
            return
        self._drawn = problem
        self._chart.show(partial(bands, problem.arms))
        self._grid.show(_arm_rows(problem.arms))


def _arm_rows(arms: Mapping[str, ArmBand]) -> list[list[Cell]]:
    """Returns the rows of arms, with the digits that tell their ends from each other and starts."""
    bands = [arm.band for arm in arms.values() if arm.band]
    starts = [value for band in bands for value in _quartiles(band[0])]
    texts = iter(number_texts([end for band in bands for end in _quartiles(band[-1])], starts))
    rows: list[list[Cell]] = []
    for name, arm in arms.items():
        low, middle, high = [next(texts) for _ in range(3)] if arm.band else ["", "–", ""]
        quartiles = f"{low} to {high}" if arm.band else "–"
        above = arm.first_above.text if arm.first_above else ""
        rows.append([name, str(arm.runs), middle, quartiles, above])
    return rows


def _quartiles(point: BandPoint) -> tuple[float, float, float]:
    return point.q25, point.median, point.q75


def _show_settings(
    grid: Grid, differing: Mapping[str, Mapping[str, object]], columns: Sequence[str]
) -> None:
    grid.show(
        [
            [key, *(shown(json.dumps(values[name], default=str))[:200] for name in columns)]
            for key, values in differing.items()
        ]
    )


def _comparisons(found: Sequence[ComparedRuns]) -> None:
    """Draws a link for each comparison."""
    if found:
        say("Comparisons by `evoq compare`:", "grey")
        links([Link(f"{each.name} ({', '.join(each.arms)})", _address(each)) for each in found])


def _address(compared: ComparedRuns) -> str:
    return f"/compare?{urlencode({'of': compared.name})}"


def _choose(newest: Sequence[Run], chosen: Sequence[Run]) -> None:
    """Draws a link for each run that adds it to those that are compared, or takes it away."""
    if not newest:
        say("No runs yet: `evoq run PROBLEM` starts one.", "grey")
        return
    say(f"Each name adds a run, or takes it away; {MOST_RUNS} at most.", "grey")
    ids = [run.id for run in chosen]
    entries = []
    for run in newest[:40]:
        after = [other for other in ids if other != run.id] + ([] if run.id in ids else [run.id])
        name = f"{run.name}{' ●' if run.id in ids else ''}"
        entries.append(Link(name, f"/compare?runs={','.join(map(str, after))}"))
    links(entries)


async def _draw(sources: Sources, runs: Sequence[Run]) -> None:
    problems = {run.problem for run in runs}
    if len(problems) > 1:
        say("These runs have different problems: their fitness is not comparable.", "notice")
    chart = Chart("Best fitness so far of each run")
    columns = ("run", "problem", "best", "settled", "measured", "failed", "cut", "time of the best")
    grid = Grid(columns, name="Runs", empty="", numbers=columns[2:])
    settings = table(
        "Settings that differ",
        ("setting", *(run.name for run in runs)),
        "The settings of these runs are the same.",
    )
    by_name = {run.name: run for run in runs}
    _show_settings(settings, await asyncio.to_thread(settings_that_differ, by_name), list(by_name))
    drawn = -1

    async def refresh() -> None:
        nonlocal drawn
        tails = [await sources.tail(run) for run in runs]
        if sum(tail.seq for tail in tails) == drawn:
            return
        drawn = sum(tail.seq for tail in tails)
        courses = {run.name: tail.course for run, tail in zip(runs, tails, strict=True)}
        chart.show(
            partial(
                curves,
                {name: course.bests for name, course in courses.items()},
                {name: course.progress.done for name, course in courses.items()},
            )
        )
        rows: list[list[Cell]] = []
        bests = number_texts(
            [courses[run.name].progress.best for run in runs],
            [each for course in courses.values() for each in course.progress.told_apart],
        )
        for run, best in zip(runs, bests, strict=True):
            course = courses[run.name]
            progress, last = course.progress, course.improvements[-1:]
            rows.append(
                [
                    Link(run.name, f"/run/{run.id}"),
                    run.problem_name,
                    best,
                    str(progress.done),
                    str(progress.measured),
                    str(sum(progress.failures.values())),
                    str(sum(progress.cuts.values())),
                    duration(last[0].seconds) if last else "–",
                ]
            )
        grid.show(rows)

    keep_live(refresh, 2.0)
