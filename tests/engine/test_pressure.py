"""Back-pressure from a real ledger: what is measured, and what is planned because of it."""

import time
from dataclasses import asdict, replace

import psycopg
import pytest

from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.sql import SqlStore
from app.config.settings import QueueSettings, RunSettings
from app.domain.operator import Completion, Prompt, Role
from app.domain.run import Run
from app.domain.search.back_pressure import LARGEST_SHARE, LEAST, SMALL, Flow, InFlightLimits
from app.engine import lifecycle, steps
from app.engine.back_pressure import pressure
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop
from app.reports.summary import run_load
from tests.engine.conftest import new_run, table
from tests.engine.toy import problem


class Slow:
    """Answers with a number, after so many seconds by its own account."""

    name = "slow"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def complete(self, prompts: list[Prompt], stop: Stop = NEVER) -> list[Completion]:
        return [
            Completion(
                f"x = {prompt.sample / 100:.4f}\n",
                self.name,
                role=Role.GENERATOR,
                latency_seconds=self._seconds * (1 + n),
            )
            for n, prompt in enumerate(prompts)
        ]


def started(ctx: Context, queue: QueueSettings, budget: int = 400, operator: str = "nudge") -> Run:
    toy = problem()
    new = replace(
        new_run(toy, budget=budget),
        settings={
            **new_run(toy).settings,
            "queue": RunSettings(queue=queue).model_dump(mode="json")["queue"],
        },
        operators={operator: 1.0},
        limits=InFlightLimits(queue.generating or SMALL, queue.evaluating or SMALL),
    )
    return lifecycle.start(ctx, toy, new)


def drain(ctx: Context) -> None:
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), lambda: False)


def stretch(database: str, run: int, seconds: float) -> None:
    """Moves what has settled apart in time, as if the run had gone on for so many seconds."""
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        connection.execute(
            """
            UPDATE proposals SET settled_at = now() - placed.share * %s * interval '1 second'
            FROM (SELECT id, 1 - row_number() OVER (ORDER BY settled_at, id)::float8 / count(*)
                OVER () AS share FROM proposals WHERE run = %s AND settled_at IS NOT NULL) AS placed
            WHERE placed.id = proposals.id
            """,
            (seconds, run),
        )


def measured(store: SqlStore, run: int, settled: int) -> Flow | None:
    with store.begin() as tx:
        return tx.proposals.flow(run, settled)


def test_the_ledger_knows_rate_and_times(ctx: Context, store: SqlStore, database: str) -> None:
    ctx = replace(ctx, model=lambda run: Slow(0.25))
    run = started(ctx, QueueSettings(generating=1, evaluating=1), budget=30, operator="asked")
    drain(ctx)
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE trials SET wall_seconds = 1.5")
    began = time.monotonic()
    stretch(database, run.id, 20.0)
    flow = measured(store, run.id, 21)
    passed = time.monotonic() - began
    assert flow is not None
    assert flow.settled == 21
    assert 0.0 <= flow.span_seconds - 20.0 * 20 / 31 <= passed
    assert flow.generating_seconds == pytest.approx(0.5), "two turns of one prompt"
    assert 1.0 < flow.evaluating_seconds <= 1.5, "duplicates were never tested"


def test_a_reply_that_was_read_back_counts_as_no_time(
    ctx: Context, store: SqlStore, database: str
) -> None:
    ctx = replace(ctx, model=lambda run: Slow(0.25))
    run = started(ctx, QueueSettings(generating=1, evaluating=1), budget=20, operator="asked")
    drain(ctx)
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE completions SET reused = true")
    flow = measured(store, run.id, 20)
    assert flow is not None
    assert flow.generating_seconds == 0.0


def test_nothing_is_measured_before_two_have_settled(ctx: Context, store: SqlStore) -> None:
    run = started(ctx, QueueSettings())
    assert measured(store, run.id, 1) is None
    assert measured(store, run.id, 2) is None


def test_limits_follow_what_was_measured_and_are_written_down(
    ctx: Context, store: SqlStore, database: str
) -> None:
    run = started(ctx, QueueSettings(), budget=800)
    queue = ctx.executor
    assert isinstance(queue, InlineExecutor)
    settled = 0

    def enough() -> bool:
        nonlocal settled
        settled += 1
        return settled > 180

    queue.drain(table(ctx), enough)
    stretch(database, run.id, 20.0)
    with store.begin() as tx:
        before = tx.proposals.backlog(run.id)
    steps.produce(ctx, run.id)
    with store.begin() as tx:
        after = tx.runs.get(run.id)
        backlog = tx.proposals.backlog(run.id)
    assert LEAST <= after.limits.generating < SMALL
    assert backlog.generating <= max(after.limits.generating, before.generating)
    assert backlog.unsettled <= max(before.unsettled, 800 * LARGEST_SHARE)


def test_a_person_sees_what_is_in_flight_and_why(
    ctx: Context, store: SqlStore, database: str
) -> None:
    # The budget is so large that its share never limits a run of this many.
    run = started(ctx, QueueSettings(evaluating=9), budget=3000)
    left = iter(range(75))
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), lambda: next(left, None) is None)
    stretch(database, run.id, 5.0)
    with store.begin() as tx:
        found = run_load(tx, tx.runs.get(run.id), tx.proposals.backlog(run.id))
    assert found.evaluating.text.endswith("of 9 (set)")
    assert "at work" in found.generating.why
    assert asdict(found)["generating"]["limit"] == found.generating.limit


def test_a_person_sees_that_the_budget_keeps_places_free(
    ctx: Context, store: SqlStore, database: str
) -> None:
    # So many are at work that no delay of this test brings the limit below the budget's.
    ctx = replace(ctx, model=lambda run: Slow(5.0))
    run = started(ctx, QueueSettings(), budget=80, operator="asked")
    left = iter(range(40))
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), lambda: next(left, None) is None)
    for _ in range(4):
        stretch(database, run.id, 1.0)
        steps.produce(ctx, run.id)
    with store.begin() as tx:
        backlog = tx.proposals.backlog(run.id)
        found = run_load(tx, tx.runs.get(run.id), backlog)
    assert backlog.unsettled == 80 * LARGEST_SHARE
    assert found.generating.why == "the budget of 80 allows 10 in flight"


def test_what_a_person_fixed_holds_and_is_not_exceeded(ctx: Context, store: SqlStore) -> None:
    run = started(ctx, QueueSettings(generating=5, evaluating=3), budget=40)
    most = [0, 0]

    def watched(name: str) -> object:
        def step(subject: int) -> None:
            table(ctx)[name](subject)
            with store.begin() as tx:
                backlog = tx.proposals.backlog(run.id)
            if not backlog.seeding:
                most[0] = max(most[0], backlog.generating)
                most[1] = max(most[1], backlog.evaluating)

        return step

    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain({name: watched(name) for name in table(ctx)}, lambda: False)  # type: ignore[arg-type]
    with store.begin() as tx:
        after = tx.runs.get(run.id)
        found = pressure(tx.proposals, after, tx.proposals.backlog(run.id))
    assert after.limits == InFlightLimits(5, 3)
    assert found.flow is not None
    assert most[0] <= 5
    assert most[1] <= 3 + 5
