"""The page of a run: its curve, live, and what explains it."""

import asyncio
from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.events import EChartPointClickEventArguments
from starlette.requests import Request

from app.dashboard.access import AUTHORISED
from app.dashboard.control import ChangeRefused, Control
from app.dashboard.pages.charts import curve
from app.dashboard.pages.layout import (
    Cell,
    Grid,
    Link,
    Tiles,
    heading,
    keep_live,
    page,
    say,
    set_text,
)
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import duration, number, shown, usd
from app.domain.run import Run
from app.reports.course import Contribution, Course

MOST_SHOWN = 25
"""Improvements and milestones on the page, newest first; `/api` has all of them."""
_CHART_SECONDS, _POINTS = 2, 500
"""Between two drawings of the chart of a run that goes on; longer by one for so many points."""


def add(sources: Sources, control: Control) -> None:
    """Adds the page."""

    @ui.page("/run/{name}", response_timeout=30)
    async def run_page(request: Request, name: str) -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(run.name):
            view = _RunView(sources, run)
            view.draw(control, authorised=bool(request.scope.get(AUTHORISED)))
            keep_live(view.refresh)


class _RunView:
    """The elements of one viewer's page."""

    def __init__(self, sources: Sources, run: Run) -> None:
        """Draws nothing yet."""
        self._sources, self._run = sources, run
        self._drawn = -1
        self._refreshes = 0

    def draw(self, control: Control, *, authorised: bool) -> None:
        run, base = self._run, f"/run/{self._run.id}"
        heading(run.name, 1)
        self._state = say("", "grey")
        self._waiting = say("", "notice")
        self._unreadable = say("", "notice")
        with ui.element("div").classes("links"):
            ui.link("Archive", f"{base}/archive")
            self._best = ui.link("Best program", base)
            self._lineage = ui.link("Lineage of the best", base)
            ui.link("Tree", f"{base}/tree")
            self._games = ui.link("Games", f"{base}/games")
            self._games.set_visibility(False)
            ui.link("Compare with others", f"/compare?runs={run.id}")
            ui.link("Events", f"/api/runs/{run.id}/events")
        if authorised:
            with ui.element("div").classes("actions"):
                for verb, act in (
                    ("Pause", control.pause),
                    ("Resume", control.resume),
                    ("Cancel", control.cancel),
                ):
                    ui.button(verb, on_click=self._changing(act)).props("outline dense no-caps")
        else:
            say(
                "Read only: the address that `evoq dashboard` printed, with its token, lets you "
                "pause, resume and cancel.",
                "grey",
            )
        self._tiles = Tiles(
            ("best", "settled", "rate", "generating", "evaluating", "cost", "tokens", "time")
        )
        heading("Fitness")
        self._chart = ui.echart(curve([], [], 0), on_point_click=self._clicked).classes("chart")
        self._chart.props('role=img aria-label="Fitness of proposals and best so far"')
        heading("Operators")
        self._operators = _shares("Operators", "operator", "No proposal has settled.")
        heading("Roles of models")
        self._roles = _shares(
            "Roles of models", "role", "All proposals were made in one role, or without a model."
        )
        heading("Failures")
        self._failures = Grid(
            ("kind", "number", "commonest message", "newest"),
            name="Failures",
            empty="No proposal has failed.",
        )
        heading("Saved work")
        self._cuts = Grid(
            ("cut because", "number"), name="Cut proposals", empty="No proposal was cut."
        )
        heading("Improvements")
        self._improvements = Grid(
            ("settled", "after", "fitness", "operator", "program"),
            name="Improvements",
            empty="No program has been measured.",
        )
        heading("Cost")
        self._costs = Grid(
            ("role or worker", "model", "completions", "prompt tokens", "reply tokens", "cost"),
            name="Cost",
            empty="Nothing has been asked of a model, and no worker has reported its time.",
        )
        heading("What happened")
        self._milestones = Grid(("after", "event"), name="What happened", empty="Nothing yet.")

    def _changing(self, act: Callable[[Run], None]) -> Callable[[], Any]:
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
        tail = await self._sources.tail(self._run)
        course = tail.course
        summary = await self._sources.summary(self._run)
        kinds = tuple(sorted(course.progress.failures))
        messages = await self._sources.failures(self._run, kinds)
        self._show_state(summary, course)
        self._games.set_visibility(bool(course.games.generations))
        self._refreshes += 1
        between = _CHART_SECONDS + len(course.points) // _POINTS
        going_on = summary["state"] == "running" and self._drawn >= 0
        if self._drawn == tail.seq or (going_on and self._refreshes % between):
            return
        self._drawn = tail.seq
        self._chart.options.clear()
        self._chart.options.update(curve(course.points, course.improvements, course.progress.done))
        self._chart.update()
        self._operators.show(_share_rows(course.operators))
        self._roles.show(_share_rows(course.roles) if len(course.roles) > 1 else [])
        self._show_failures(course, messages)
        self._cuts.show([[kind, str(n)] for kind, n in _most(course.progress.cuts)])
        self._improvements.show(self._improvement_rows(course))
        self._milestones.show(
            [
                [duration(each.seconds), shown(each.text)]
                for each in reversed(list(course.milestones)[-MOST_SHOWN:])
            ]
        )

    def _show_state(self, summary: dict[str, Any], course: Course) -> None:
        run, load, best = self._run, summary["in_flight"], summary["best"]
        reason = f": {summary['reason']}" if summary["reason"] and not summary["waiting"] else ""
        set_text(
            self._state,
            f"{summary['state']}{shown(reason)} · {run.problem_name} · {run.strategy} · "
            f"{run.islands} {'island' if run.islands == 1 else 'islands'} · seed {run.seed}",
        )
        set_text(
            self._waiting, f"waits for: {shown(summary['waiting'])}" if summary["waiting"] else ""
        )
        set_text(
            self._unreadable,
            f"This version cannot read the problem of this run, so its baselines are not named: "
            f"{shown(summary['unreadable'])}"
            if summary["unreadable"]
            else "",
        )
        rate = course.progress.rate(summary["elapsed_seconds"])
        settled = f"{summary['iterations']} of {summary['budget']}"
        costs = summary["costs"]
        self._tiles.show(
            best=number(best["fitness"] if best else None),
            settled=settled,
            rate=f"{rate:.3g} a second" if rate and summary["state"] == "running" else "–",
            generating=_load(load and load["generating"]),
            evaluating=_load(load and load["evaluating"]),
            cost=usd(costs["cost_usd"]) if costs["cost_usd"] else "–",
            tokens=f"{summary['tokens']:,}",
            time=duration(summary["wall_seconds"]),
        )
        self._show_costs(costs)
        if best:
            for link, part in ((self._best, "program"), (self._lineage, "lineage")):
                target = f"/run/{run.id}/{part}/{best['program']}"
                if link.props.get("href") != target:
                    link.props["href"] = target
                    link.update()

    def _show_costs(self, costs: dict[str, Any]) -> None:
        models: list[list[Cell]] = [
            [
                account["role"],
                account["model"],
                str(account["completions"]),
                f"{account['prompt_tokens']:,}",
                f"{account['completion_tokens']:,}",
                usd(account["cost_usd"]),
            ]
            for account in costs["models"]
        ]
        workers: list[list[Cell]] = [
            [
                f"{time['workers']} × worker {time['kind']}",
                duration(time["seconds"]),
                "",
                "",
                "",
                usd(time["cost_usd"]),
            ]
            for time in costs["workers"]
        ]
        self._costs.show(models + workers)

    def _show_failures(self, course: Course, messages: dict[str, str]) -> None:
        rows: list[list[Cell]] = []
        for kind, n in _most(course.progress.failures):
            newest = next(
                (each for each in reversed(course.examples.get(kind, ())) if each.program), None
            )
            example: Cell = "no program"
            if newest is not None and newest.program is not None:
                to = f"/run/{self._run.id}/program/{newest.program}"
                example = Link(f"proposal {newest.proposal}", to)
            rows.append([kind, str(n), shown(messages.get(kind, ""))[:400], example])
        self._failures.show(rows)

    def _improvement_rows(self, course: Course) -> list[list[Cell]]:
        return [
            [
                str(best.settled),
                duration(best.seconds),
                number(best.fitness),
                best.operator,
                Link(best.program[:12], f"/run/{self._run.id}/program/{best.program}"),
            ]
            for best in reversed(course.improvements[-MOST_SHOWN:])
        ]


def _shares(name: str, column: str, empty: str) -> Grid:
    return Grid(
        (column, "settled", "entered a cell", "no cell", "cut", "failed", "improvements"),
        name=name,
        empty=empty,
    )


def _share_rows(shares: dict[str, Contribution]) -> list[list[Cell]]:
    improvements = sum(share.improvements for share in shares.values())
    return [
        [
            name,
            str(share.settled),
            str(share.admitted),
            str(share.refused),
            str(share.cut),
            str(share.failed),
            f"{share.improvements} ({share.improvements / improvements:.0%})"
            if improvements
            else "0",
        ]
        for name, share in sorted(shares.items(), key=lambda item: -item[1].settled)
    ]


def _most(counts: Any) -> list[tuple[str, int]]:
    return sorted(((str(kind), n) for kind, n in counts.items()), key=lambda item: -item[1])


def _load(stage: dict[str, Any] | None) -> str:
    return "–" if not stage else f"{stage['in_flight']} of {stage['limit']}"
