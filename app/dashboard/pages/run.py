"""The page of a run: its curve, live, and what explains it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from nicegui import ui
from nicegui.events import EChartPointClickEventArguments
from starlette.requests import Request

from app.dashboard.access import AUTHORISED
from app.dashboard.control import ChangeRefused, Control
from app.dashboard.pages.charts import by_generation, curve, outcomes
from app.dashboard.pages.layout import (
    Cell,
    Chart,
    Grid,
    Link,
    Tiles,
    columns,
    heading,
    keep_live,
    mark,
    page,
    say,
    section,
    set_text,
)
from app.dashboard.pages.metric import MetricView
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import shown
from app.dashboard.tail import Tail
from app.domain.digits import number_text, number_texts
from app.domain.finite import difference
from app.domain.program import ProgramId
from app.domain.run import Run, RunState
from app.domain.search.strategy import Ranking
from app.reports.costs import Costs
from app.reports.course import Contribution, Course, FailureExample
from app.reports.documents import RunDocument
from app.reports.funnel import HEADINGS
from app.reports.generations import GenerationRow, has_generations
from app.reports.summary import Summary, ValidatedProgram
from app.reports.text import duration, usd

_N = TypeVar("_N", int, float)
MOST_SHOWN = 25
"""Improvements and milestones on the page, newest first; `/api` has all of them."""
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
            islands = _counted(run.islands, "island")
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
        self._chart = Chart("Fitness of proposals and best so far", self._clicked)
        self._generations: Chart | None = None
        if has_generations(run):
            heading("Generations")
            say("Means are of the programs that were measured at every stage.", "grey")
            self._generations = Chart("Scores and proposals of generations")
        self._metric = MetricView(metric, self._clicked)
        heading("Outcomes")
        self._outcomes = Chart("What became of the proposals", low=True)
        with columns():
            with ui.element("div"):
                self._draw_search()
            with ui.element("div"):
                self._draw_machinery()

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

    def _draw_search(self) -> None:
        with section("Improvements"):
            self._improvements = Grid(
                ("settled", "after", "fitness", "operator", "program"),
                name="Improvements",
                empty="No program has been measured.",
                numbers=("settled", "after", "fitness"),
            )
        with section("Failures"):
            self._failures = Grid(
                ("kind", "number", "commonest message", "newest proposals"),
                name="Failures",
                empty="No proposal has failed.",
                numbers=("number",),
                words="commonest message",
            )
        with section("Funnel"):
            self._funnel = Grid(
                HEADINGS,
                name="Funnel",
                empty="No proposal has been begun.",
                numbers=HEADINGS[2:],
            )
        with section("Operators"):
            self._operators = _shares("Operators", "operator", "No proposal has settled.")
        with section("Roles of models"):
            self._roles = _shares(
                "Roles of models",
                "role",
                "All proposals were made in one role, or without a model.",
            )

    def _draw_machinery(self) -> None:
        with section("In flight"):
            self._flight = Grid(
                ("stage", "in flight", "limit", "rate and time of a step"),
                name="In flight",
                empty="The run has ended.",
                numbers=("in flight", "limit"),
            )
            self._places = say("", "grey")
        with section("Cost"):
            counts = ("completions", "prompt tokens", "reply tokens", "cost", "improvements")
            self._costs = Grid(
                ("role", "model", *counts),
                name="Cost",
                empty="Nothing has been asked of a model.",
                numbers=counts,
            )
            self._workers = Grid(
                ("workers", "kind", "time on this run", "cost"),
                name="Time of workers",
                empty="No worker has reported its time.",
                numbers=("workers", "time on this run", "cost"),
            )
        with section("Saved work"):
            self._cuts = Grid(
                ("not evaluated because", "number"),
                name="Saved work",
                empty="No proposal was cut, and no trial took the result of an equal one.",
                numbers=("number",),
            )
        with section("Validation"):
            self._validated = Grid(
                ("program", "fitness on validation data", "in the search", "what it is"),
                name="Validation",
                empty="Nothing has been measured on data that the search does not see.",
                numbers=("fitness on validation data", "in the search"),
            )
        with section("What happened"):
            self._milestones = Grid(
                ("after", "event"), name="What happened", empty="Nothing yet.", numbers=("after",)
            )

    def _changing(self, act: Callable[[Run], None]) -> Callable[[], Awaitable[None]]:
        async def change() -> None:
            try:
                await asyncio.to_thread(act, self._run)
            except ChangeRefused as refusal:
                ui.notify(str(refusal), type="warning", multi_line=True)
            await self.refresh()

        return change

    def _clicked(self, click: EChartPointClickEventArguments) -> None:
        if isinstance(click.data, list) and len(click.data) > 2:
            ui.navigate.to(f"/run/{self._run.id}/program/{click.data[2]}")

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
        self._show_costs(summary.costs, writers)
        self._funnel.show([[shown(cell) for cell in row] for row in summary.funnel.rows()])
        for element in (self._games, self._relative):
            element.set_visibility(bool(course.games.generations))
        if due:
            self._drawn = tail.seq
            self._show_course(course, summary, generations)
            self._show_failures(course, messages)

    def _due(self, tail: Tail, course: Course, summary: Summary) -> bool:
        """Returns whether the charts are drawn anew: after new events, and not each time."""
        self._refreshes += 1
        between = _CHART_SECONDS + len(course.points) // _POINTS
        going_on = summary.run.state is RunState.RUNNING and self._drawn >= 0
        return self._drawn != tail.seq and not (going_on and self._refreshes % between)

    def _show_course(
        self, course: Course, summary: Summary, generations: Sequence[GenerationRow]
    ) -> None:
        """Draws the charts, and what is listed event by event."""
        measured = summary.baselines
        baselines = {n: seed.fitness for n, seed in measured.items() if seed.fitness is not None}
        settled = course.progress.done
        self._chart.show(partial(curve, course.points, course.bests, settled, baselines))
        if self._generations is not None:
            self._generations.show(partial(by_generation, generations))
        self._metric.show(course, measured)
        self._outcomes.show(partial(outcomes, course.segments, course.span))
        self._operators.show(_share_rows(course.operators))
        self._roles.show(_share_rows(course.roles) if len(course.roles) > 1 else [])
        self._improvements.show(self._improvement_rows(course))
        self._milestones.show(
            [
                [duration(each.seconds), shown(each.text)]
                for each in reversed(list(course.milestones)[-MOST_SHOWN:])
            ]
        )

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
        self._show_flight(summary)
        self._show_saved(summary, course)
        self._show_validated(summary, course)
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

    def _show_flight(self, summary: Summary) -> None:
        load = summary.load
        stages = {"generating": load.generating, "evaluating": load.evaluating} if load else {}
        self._flight.show(
            [[stage, str(at.in_flight), str(at.limit), at.why] for stage, at in stages.items()]
        )
        places = summary.places
        set_text(self._places, f"Places of all workers: {places.text}." if places else "")

    def _show_costs(self, costs: Costs, writers: Mapping[tuple[str, str], int]) -> None:
        self._costs.show(
            [
                [
                    account.role,
                    account.model,
                    f"{account.completions:,}",
                    f"{account.prompt_tokens:,}",
                    f"{account.completion_tokens:,}",
                    usd(account.cost_usd, "–"),
                    str(writers.get((account.role, account.model), 0)),
                ]
                for account in costs.models
            ]
        )
        self._workers.show(
            [
                [str(time.workers), time.kind, duration(time.seconds), usd(time.cost_usd, "–")]
                for time in costs.workers
            ]
        )

    def _show_saved(self, summary: Summary, course: Course) -> None:
        reused, costs = summary.savings.reused, summary.costs
        cuts = _most(course.progress.cuts)
        rows = [[f"cut: {kind.replace('_', ' ')}", f"{n:,}"] for kind, n in cuts]
        if reused.trials:
            seconds = duration(reused.wall_seconds)
            rows.append([f"result of an equal trial, {seconds} long", f"{reused.trials:,}"])
        if costs.reused:
            rows.append(["completion of an equal prompt", f"{costs.reused:,}"])
        if costs.prefix_hit_rate:
            share = f"{costs.prefix_hit_rate:.0%}"
            rows.append(["prompt tokens in the cache of the endpoint", share])
        self._cuts.show(rows)

    def _show_validated(self, summary: Summary, course: Course) -> None:
        validated = summary.validated
        measured = number_texts([each.measured.fitness for each in validated])
        in_search = [each.admitted.fitness if each.admitted else None for each in validated]
        searched = number_texts(in_search, course.progress.told_apart)
        self._validated.show(
            [
                self._validated_cells(*each)
                for each in zip(validated, measured, searched, strict=True)
            ]
        )

    def _validated_cells(
        self, validated: ValidatedProgram, measured: str, searched: str
    ) -> list[Cell]:
        program, failure = validated.measured.program, validated.failure
        what = ", ".join(validated.names)
        return [
            Link(program[:12], f"/run/{self._run.id}/program/{program}"),
            failure.kind.value if failure else measured,
            searched,
            shown(what or ("of the search" if validated.admitted else "")),
        ]

    def _show_failures(self, course: Course, messages: dict[str, str]) -> None:
        rows: list[list[Cell]] = []
        for kind, n in _most(course.progress.failures):
            examples = tuple(
                self._example(each) for each in reversed(course.examples.get(kind, ()))
            )
            rows.append([kind, f"{n:,}", shown(messages.get(kind, ""))[:400], examples])
        self._failures.show(rows)

    def _example(self, failed: FailureExample) -> Link:
        base = f"/run/{self._run.id}"
        if failed.program is None:
            return Link(str(failed.proposal), f"{base}/proposal/{failed.proposal}")
        return Link(str(failed.proposal), f"{base}/program/{failed.program}")

    def _improvement_rows(self, course: Course) -> list[list[Cell]]:
        newest = course.improvements[-MOST_SHOWN:]
        texts = number_texts([best.fitness for best in newest], course.progress.told_apart)
        return [
            [
                f"{best.settled:,}",
                duration(best.seconds),
                fitness,
                best.operator,
                Link(best.program[:12], f"/run/{self._run.id}/program/{best.program}"),
            ]
            for best, fitness in reversed(list(zip(newest, texts, strict=True)))
        ]


def _shares(name: str, column: str, empty: str) -> Grid:
    counts = ("settled", "entered a cell", "no cell", "cut", "failed", "improvements")
    return Grid((column, *counts), name=name, empty=empty, numbers=counts)


def _share_rows(shares: dict[str, Contribution]) -> list[list[Cell]]:
    improvements = sum(share.improvements for share in shares.values())
    return [
        [
            name,
            *(f"{n:,}" for n in (share.settled, share.entered, share.refused)),
            *(f"{n:,}" for n in (share.cut, share.failed)),
            f"{share.improvements} ({share.improvements / improvements:.0%})"
            if improvements
            else "0",
        ]
        for name, share in sorted(shares.items(), key=lambda item: -item[1].settled)
    ]


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(((str(kind), n) for kind, n in counts.items()), key=lambda item: -item[1])


def _counted(count: int, one: str) -> str:
    return f"{count:,} {one if count == 1 else one + 's'}"


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
        f"{difference(best.fitness, seed.fitness):+.4g} on {shown(name)}"
        for name, seed in summary.baselines.items()
        if summary.run.ranking is Ranking.ABSOLUTE
        and best.fitness is not None
        and seed.fitness is not None
    ]
    return "; ".join(gains[:1] + ["chosen by validation"] * best.validated)


def _of_budget(limit: _N | None, form: Callable[[_N], str]) -> str:
    return "" if limit is None else f"of {form(limit)}"
