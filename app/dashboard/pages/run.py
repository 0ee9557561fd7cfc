"""The page of a run: its curve, live, and what explains it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from nicegui import ui
from starlette.requests import Request

from app.dashboard.access import AUTHORISED
from app.dashboard.control import ChangeRefused, Control
from app.dashboard.pages.charts import by_generation, curve, outcomes
from app.dashboard.pages.layout import (
    Chart,
    Tiles,
    columns,
    heading,
    keep_live,
    mark,
    opener,
    page,
    say,
    set_text,
)
from app.dashboard.pages.metric import MetricView
from app.dashboard.pages.run_tables import MachineryTables, SearchTables
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import counted, gain, shown
from app.dashboard.tail import Tail
from app.domain.digits import number_text
from app.domain.program import ProgramId
from app.domain.run import Run, RunState
from app.domain.search.strategy import Ranking
from app.reports.course import Course
from app.reports.documents import RunDocument
from app.reports.generations import GenerationRow, has_generations
from app.reports.summary import Summary
from app.reports.text import duration, usd

_N = TypeVar("_N", int, float)
_POSSIBLE = {
    "Pause": (RunState.RUNNING,),
    "Resume": (RunState.PAUSED, RunState.CANCELLED, RunState.FAILED),
    "Cancel": (RunState.RUNNING, RunState.PAUSED),
}
_CHART_SECONDS, _POINTS = 2, 500
"""Between two drawings of the chart of a run that goes on; longer by one for so many points."""


def add(sources: Sources, control: Control) -> None:
    """Adds the page."""

    @ui.page("/run/{name}", response_timeout=30)
    async def run_page(request: Request, name: str, metric: str = "") -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(run.name):
            view = _RunView(sources, run)
            view.draw(control, metric, authorised=bool(request.scope.get(AUTHORISED)))
            keep_live(view.refresh)


@dataclass(frozen=True, slots=True)
class _Best:
    """The best program that the page shows.

    Attributes:
      fitness: In the search.
      validated: Whether validation chose it; else it is the newest best of the search.
    """

    program: ProgramId
    fitness: float | None
    validated: bool


class _RunView:
    """The elements of one viewer's page."""

    def __init__(self, sources: Sources, run: Run) -> None:
        """Draws nothing yet."""
        self._sources, self._run = sources, run
        self._drawn = -1
        self._refreshes = 0
        self._buttons: dict[str, ui.button] = {}

    def draw(self, control: Control, metric: str, *, authorised: bool) -> None:
        run, base = self._run, f"/run/{self._run.id}"
        with ui.element("div").classes("links"):
            self._state = say("")
            islands = counted(run.islands, "island")
            say(f"{run.problem_name} · {run.strategy} · {islands} · seed {run.seed}", "grey")
        self._reason = say("", "grey")
        self._waiting = say("", "notice")
        self._unreadable = say("", "notice")
        self._why = say("", "notice")
        with ui.element("div").classes("links"):
            ui.link("Archive", f"{base}/archive")
            self._best = ui.link("Best program", base)
            self._lineage = ui.link("Lineage of the best", base)
            ui.link("Tree", f"{base}/tree")
            self._games = ui.link("Games", f"{base}/games")
            self._games.set_visibility(False)
            ui.link("Compare with others", f"/compare?runs={run.id}")
            ui.link("Events", f"/api/runs/{run.id}/events")
        self._draw_actions(control, authorised)
        self._tiles = Tiles(
            ("best", "settled", "rate", "since the best", "failed", "cost", "tokens", "time")
        )
        heading("Fitness")
        self._relative = say(
            "Programs play each other, so fitness is the share of the points in a generation, and "
            "the best is the newest champion: its share can be lower than that of one before. The "
            "page of the games has ratings that compare generations.",
            "grey",
        )
        self._relative.set_visibility(False)
        self._chart = Chart("Fitness of proposals and best so far", opener(run.id, 2))
        self._generations: Chart | None = None
        if has_generations(run):
            heading("Generations")
            say("Means are of the programs that were measured at every stage.", "grey")
            self._generations = Chart("Scores and proposals of generations")
        self._metric = MetricView(metric, opener(run.id, 2))
        heading("Outcomes")
        self._outcomes = Chart("What became of the proposals", low=True)
        with columns():
            with ui.element("div"):
                self._search = SearchTables(run)
            with ui.element("div"):
                self._machinery = MachineryTables(run)

    def _draw_actions(self, control: Control, authorised: bool) -> None:
        if not authorised:
            say(
                "Read only: the address that `evoq dashboard` printed, with its token, lets you "
                "pause, resume and cancel.",
                "grey",
            )
            return
        actions = {"Pause": control.pause, "Resume": control.resume, "Cancel": control.cancel}
        with ui.element("div").classes("actions"):
            for verb, act in actions.items():
                button = ui.button(verb, on_click=self._changing(act))
                self._buttons[verb] = button.props("outline dense no-caps")
                button.set_visibility(False)

    def _changing(self, act: Callable[[Run], None]) -> Callable[[], Awaitable[None]]:
        async def change() -> None:
            try:
                await asyncio.to_thread(act, self._run)
            except ChangeRefused as refusal:
                ui.notify(str(refusal), type="warning", multi_line=True)
            await self.refresh()

        return change

    async def refresh(self) -> None:
        """Draws what has changed: counts of the tail, and beside them what SQL alone knows.

        Everything is read before anything is drawn, so that all counts are those at one event.
        """
        tail = await self._sources.tail(self._run)
        course = tail.course
        document = await self._sources.document(self._run)
        summary = document.summary
        kinds = tuple(sorted(course.progress.failures))
        messages = await self._sources.failures(self._run, kinds)
        writers = await self._sources.writers(self._run, course.improvements)
        due = self._due(tail, course, summary)
        generations: list[GenerationRow] = []
        if due and self._generations is not None:
            generations = await self._sources.generations(self._run)
        self._show_state(document, course)
        self._machinery.show(summary, course, writers)
        self._search.show_funnel(summary.funnel)
        for element in (self._games, self._relative):
            element.set_visibility(bool(course.games.generations))
        if due:
            self._drawn = tail.seq
            self._show_course(course, summary, generations)
            self._search.show(course, messages)
            self._machinery.show_milestones(course)

    def _due(self, tail: Tail, course: Course, summary: Summary) -> bool:
        """Returns whether the charts are drawn anew: after new events, and not each time."""
        self._refreshes += 1
        between = _CHART_SECONDS + len(course.points) // _POINTS
        going_on = summary.run.state is RunState.RUNNING and self._drawn >= 0
        return self._drawn != tail.seq and not (going_on and self._refreshes % between)

    def _show_course(
        self, course: Course, summary: Summary, generations: Sequence[GenerationRow]
    ) -> None:
        """Draws the charts."""
        measured = summary.baselines
        baselines = {n: seed.fitness for n, seed in measured.items() if seed.fitness is not None}
        settled = course.progress.done
        self._chart.show(partial(curve, course.points, course.bests, settled, baselines))
        if self._generations is not None:
            self._generations.show(partial(by_generation, generations))
        self._metric.show(course, measured)
        self._outcomes.show(partial(outcomes, course.segments, course.span))

    def _show_state(self, document: RunDocument, course: Course) -> None:
        summary, run = document.summary, document.summary.run
        mark(self._state, run.state.value)
        for verb, button in self._buttons.items():
            button.set_visibility(run.state in _POSSIBLE[verb])
        waiting = shown(document.waiting)
        set_text(self._reason, "" if waiting else shown(run.reason))
        set_text(self._waiting, f"waits for: {waiting}" if waiting else "")
        common = summary.explanation
        set_text(self._why, f"commonest failure: {shown(common.text)}" if common else "")
        set_text(
            self._unreadable,
            f"This version cannot read the problem of this run, so its baselines are not named: "
            f"{shown(document.unreadable)}"
            if document.unreadable
            else "",
        )
        best = _best(summary, course)
        self._show_tiles(summary, course, best)
        if best:
            for link, part in ((self._best, "program"), (self._lineage, "lineage")):
                target = f"/run/{run.id}/{part}/{best.program}"
                if link.props.get("href") != target:
                    link.props["href"] = target
                    link.update()

    def _show_tiles(self, summary: Summary, course: Course, best: _Best | None) -> None:
        run, limits, cost = summary.run, self._run.budget, summary.costs.cost_usd
        progress, done, budget = course.progress, course.progress.done, run.budget.proposals
        rate = progress.rate(run.elapsed_seconds)
        running = run.state is RunState.RUNNING
        eta = progress.eta_seconds(budget, run.elapsed_seconds) if running else None
        failed = sum(progress.failures.values())
        since = sum(progress.failures_since_best.values())
        last = course.improvements[-1] if course.improvements else None
        self._tiles.show(
            best=(
                number_text(
                    best.fitness if best else None,
                    *progress.told_apart,
                    *(seed.fitness for seed in summary.baselines.values()),
                ),
                _remark(summary, best),
            ),
            settled=(f"{done:,}", f"of {budget:,} ({done / budget:.0%})"),
            rate=(
                f"{rate:.3g}/s" if rate and running else "–",
                f"{duration(eta)} to go" if eta else "",
            ),
            since_the_best=(
                f"{done - last.settled:,}" if last else "–",
                f"proposals, {since:,} failed; found after {duration(last.seconds)}"
                if last
                else "",
            ),
            failed=(f"{failed:,}", f"{failed / done:.0%} of the settled" if done else ""),
            cost=(usd(cost) if cost else "–", _of_budget(limits.cost_usd, usd)),
            tokens=(f"{run.tokens:,}", _of_budget(limits.tokens, "{:,}".format)),
            time=(duration(summary.seconds), _of_budget(limits.wall_seconds, duration)),
        )


def _best(summary: Summary, course: Course) -> _Best | None:
    """Returns the best program: of the tail, unless validation, which SQL alone knows, chose it."""
    chosen = summary.best
    if chosen is not None and chosen.validation is not None:
        return _Best(chosen.measured.program, chosen.measured.fitness, validated=True)
    if not course.improvements:
        return None
    return _Best(course.improvements[-1].program, course.progress.best, validated=False)


def _remark(summary: Summary, best: _Best | None) -> str:
    """Returns how much the best is above the first baseline, and whether validation chose it."""
    if best is None:
        return ""
    gains = [
        f"{above} on {shown(name)}"
        for name, seed in summary.baselines.items()
        if summary.run.ranking is Ranking.ABSOLUTE and (above := gain(best.fitness, seed.fitness))
    ]
    return "; ".join(gains[:1] + ["chosen by validation"] * best.validated)


def _of_budget(limit: _N | None, form: Callable[[_N], str]) -> str:
    return "" if limit is None else f"of {form(limit)}"
