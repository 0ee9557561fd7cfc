"""The tables of a run's page: what the search did, and what the machinery did for it."""

from collections.abc import Collection, Mapping, Sequence

from nicegui import ui

from app.dashboard.pages.layout import Cell, Grid, Link, program_link, say, section, set_text, table
from app.dashboard.pages.text import shown
from app.domain.digits import number_texts
from app.domain.run import Run
from app.reports.costs import Costs
from app.reports.course import Contribution, Course, FailureExample
from app.reports.funnel import HEADINGS, Funnel
from app.reports.summary import Summary, ValidatedProgram
from app.reports.text import duration, usd

MOST_SHOWN = 25
"""Improvements and milestones on the page, newest first; `/api` has all of them."""


class SearchTables:
    """Improvements, failures, and the contributions of operators and roles."""

    def __init__(self, run: Run) -> None:
        """Draws them without rows."""
        self._run = run.id
        self._improvements = _table(
            "Improvements",
            ("settled", "after", "fitness", "operator", "program"),
            "No program has been measured.",
            numbers=("settled", "after", "fitness"),
        )
        self._failures = _table(
            "Failures",
            ("kind", "number", "commonest message", "newest proposals"),
            "No proposal has failed.",
            numbers=("number",),
            words="commonest message",
        )
        self._funnel = _table(
            "Funnel", HEADINGS, "No proposal has been begun.", numbers=HEADINGS[2:]
        )
        counts = ("settled", "entered a cell", "no cell", "cut", "failed", "improvements")
        self._operators = _table(
            "Operators", ("operator", *counts), "No proposal has settled.", numbers=counts
        )
        self._roles = _table(
            "Roles of models",
            ("role", *counts),
            "All proposals were made in one role, or without a model.",
            numbers=counts,
        )

    def show_funnel(self, funnel: Funnel) -> None:
        """Shows how far proposals came."""
        self._funnel.show([[shown(cell) for cell in row] for row in funnel.rows()])

    def show(self, course: Course, messages: Mapping[str, str]) -> None:
        """Shows what is listed event by event, with the commonest message of each failure."""
        self._operators.show(_share_rows(course.operators))
        self._roles.show(_share_rows(course.roles) if len(course.roles) > 1 else [])
        self._improvements.show(self._improvement_rows(course))
        self._failures.show(
            [
                [kind, f"{n:,}", shown(messages.get(kind, ""))[:400], self._examples(course, kind)]
                for kind, n in _most_first(course.progress.failures)
            ]
        )

    def _examples(self, course: Course, kind: str) -> tuple[Link, ...]:
        return tuple(self._example(failed) for failed in reversed(course.examples.get(kind, ())))

    def _example(self, failed: FailureExample) -> Link:
        number, program = str(failed.proposal), failed.program
        page = f"proposal/{number}" if program is None else f"program/{program}"
        return Link(number, f"/run/{self._run}/{page}")

    def _improvement_rows(self, course: Course) -> list[list[Cell]]:
        newest = course.improvements[-MOST_SHOWN:]
        texts = number_texts([best.fitness for best in newest], course.progress.told_apart)
        return [
            [
                f"{best.settled:,}",
                duration(best.seconds),
                fitness,
                best.operator,
                program_link(self._run, best.program),
            ]
            for best, fitness in reversed(list(zip(newest, texts, strict=True)))
        ]


class MachineryTables:
    """Proposals in flight, costs, saved work, validation and milestones."""

    def __init__(self, run: Run) -> None:
        """Draws them without rows."""
        self._run = run.id
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
        self._cuts = _table(
            "Saved work",
            ("not evaluated because", "number"),
            "No proposal was cut, and no trial took the result of an equal one.",
            numbers=("number",),
        )
        self._validated = _table(
            "Validation",
            ("program", "fitness on validation data", "in the search", "what it is"),
            "Nothing has been measured on data that the search does not see.",
            numbers=("fitness on validation data", "in the search"),
        )
        self._milestones = _table(
            "What happened", ("after", "event"), "Nothing yet.", numbers=("after",)
        )

    def show(
        self, summary: Summary, course: Course, writers: Mapping[tuple[str, str], int]
    ) -> None:
        """Shows everything but the milestones.

        Args:
          summary: What SQL alone knows.
          course: The counts of the tail.
          writers: How many improvements each role and model took part in.
        """
        self._show_flight(summary)
        self._show_costs(summary.costs, writers)
        self._show_saved(summary, course)
        self._show_validated(summary, course)

    def show_milestones(self, course: Course) -> None:
        """Shows the newest milestones, the newest first."""
        self._milestones.show(
            [
                [duration(milestone.seconds), shown(milestone.text)]
                for milestone in reversed(list(course.milestones)[-MOST_SHOWN:])
            ]
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
        cuts = _most_first(course.progress.cuts)
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
            program_link(self._run, program),
            failure.kind.value if failure else measured,
            searched,
            shown(what or ("of the search" if validated.admitted else "")),
        ]


def _table(
    name: str,
    columns: Sequence[str],
    empty: str,
    *,
    numbers: Collection[str] = (),
    words: str = "",
) -> Grid:
    """Draws a table as a section of its own; see `Grid`."""
    with ui.element("section"):
        return table(name, columns, empty, numbers=numbers, words=words)


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


def _most_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(((str(kind), n) for kind, n in counts.items()), key=lambda item: -item[1])
