"""The demand for workers: what the ledger says that a fleet has to do, and what it leaves out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.sql import SqlStore
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import SMALL
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.workers import Capacity, Worker
from tests.engine.conftest import new_run, table
from tests.engine.test_pressure import Slow, stretch
from tests.engine.toy import problem

Ask = Callable[..., int]


@pytest.fixture
def asked(database: str) -> Ask:
    """Asks as an autoscaler does: by a connection of its own, with a role without any right."""
    address = database.replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS autoscaler")
        connection.execute("CREATE ROLE autoscaler")

    def ask(queue: str, tag: str = "") -> int:
        with psycopg.connect(address) as connection:
            connection.execute("SET ROLE autoscaler")
            found = connection.execute("SELECT evoq_demand(%s, %s)", (queue, tag)).fetchone()
        assert found is not None
        return int(found[0])

    return ask


def started(ctx: Context, budget: int = 400, **changes: Any) -> Run:
    new = replace(new_run(problem(), budget=budget, in_flight=SMALL), **changes)
    return lifecycle.start(ctx, problem(), new)


def work(ctx: Context, *names: str) -> None:
    """Handles the messages that there are now, of these steps; the others are lost."""
    assert isinstance(ctx.executor, InlineExecutor)
    messages = list(ctx.executor._messages)
    ctx.executor._messages.clear()
    for step, subject in messages:
        if step in names:
            table(ctx)[step](subject)


def measured(ctx: Context) -> Run:
    """Returns a run whose seed is measured, and whose first proposals are planned."""
    run = started(ctx)
    work(ctx, "generate")
    work(ctx, "evaluate")
    steps.produce(ctx, run.id)
    return run


def unlimited(ctx: Context) -> Run:
    """Returns a run that asks a model, and whose limits are measured."""
    settings = new_run(problem()).settings
    queue = {**settings["queue"], "generating": None, "evaluating": None}
    return started(ctx, 4000, settings={**settings, "queue": queue}, operators={"asked": 1.0})


def settle(ctx: Context, run: Run) -> None:
    """Works until a hundred proposals of a run have settled."""

    def enough() -> bool:
        with ctx.store.begin() as tx:
            return len(tx.history.settled(run.id, limit=1000)) >= 100

    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), enough)


def set_run(database: str, run: int, change: str) -> None:
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        connection.execute(f"UPDATE runs SET {change} WHERE id = %s", (run,))


def test_a_new_run_asks_for_a_worker_of_each_queue_before_it_has_steps_for_both(
    ctx: Context, asked: Ask
) -> None:
    assert (asked("gpu"), asked("cpu")) == (0, 0)
    started(ctx)
    assert (asked("gpu"), asked("cpu")) == (1, 1), "no trial is there yet"
    work(ctx, "generate")
    assert (asked("gpu"), asked("cpu")) == (1, 1), "no proposal is there any more"


def test_steps_that_wait_and_steps_at_work_are_counted_for_their_queue(
    ctx: Context, store: SqlStore, asked: Ask
) -> None:
    run = measured(ctx)
    with store.begin() as tx:
        planned = tx.proposals.backlog(run.id).generating
        ids = [n for step, n in ctx.executor._messages if step == "generate"]  # type: ignore[attr-defined]
        tx.proposals.claim(ids[:2], 30.0, attempts=5)
    assert planned > 2
    assert (asked("gpu"), asked("cpu"), asked("gpu", "a100")) == (planned, 1, 0)
    with store.begin() as tx:
        [cpu, gpu] = tx.workers.demand(run.id)
    assert (gpu.queue, gpu.waiting, gpu.leased, gpu.places) == ("gpu", planned - 2, 2, planned)
    assert (cpu.queue, cpu.steps, cpu.places) == ("cpu", 0, 1)


@pytest.mark.parametrize(
    "change",
    [
        *(f"state = '{state}'" for state in RunState if state is not RunState.RUNNING),
        "budget_wall_seconds = 1, created_at = now() - interval '2 seconds'",
        "in_process = true",
    ],
)
def test_a_run_that_no_worker_is_to_go_on_with_asks_for_none(
    ctx: Context, database: str, asked: Ask, change: str
) -> None:
    set_run(database, started(ctx).id, change)
    assert (asked("gpu"), asked("cpu")) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        "proposals = budget",
        "budget_tokens = 5, tokens = 5",
        "budget_cost_usd = 0.1, cost_usd = 0.2",
        "held = true",
        "operators = '{}'",
    ],
)
def test_a_run_whose_budget_is_spent_asks_for_what_is_in_flight_alone(
    ctx: Context, database: str, asked: Ask, change: str
) -> None:
    run = started(ctx)
    work(ctx, "generate")
    set_run(database, run.id, f"{change}, unplaced = 8")
    assert (asked("gpu"), asked("cpu")) == (0, 1)


def test_places_are_counted_not_messages(ctx: Context, database: str, asked: Ask) -> None:
    seeds = tuple(f"x = {n}.0\n" for n in range(9))
    run = lifecycle.start(ctx, problem(seeds=seeds), new_run(problem(), budget=50))
    work(ctx, "generate")
    assert asked("cpu") == 9
    set_run(database, run.id, "evaluate_batch = 4")
    assert asked("cpu") == 3, "a sandbox takes four trials at a time"
    set_run(database, run.id, "trials_at_once = 2")
    assert asked("cpu") == 2, "the run may have no more of them at work"


def test_a_queue_that_there_is_not_is_an_error_and_not_no_demand(asked: Ask) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no queue 'gpo'; the queues"):
        asked("gpo")


def test_a_run_that_fills_its_places_asks_for_more_and_one_that_does_not_asks_for_none(
    ctx: Context, store: SqlStore, database: str, asked: Ask
) -> None:
    """Places bound what is planned: an autoscaler that saw this alone would add none."""
    ctx = replace(ctx, model=lambda run: Slow(0.25))
    run = unlimited(ctx)
    worker = Worker("w", "gpu")

    def plan(model: int) -> int:
        with store.begin() as tx:
            tx.workers.record(worker, {}, Capacity(model, 4))
        steps.produce(ctx, run.id)
        with store.begin() as tx:
            return tx.proposals.backlog(run.id).generating

    settle(ctx, run)
    stretch(database, run.id, 2.0)
    # A proposal takes a minute, by which its rate is bounded: no delay of this test lowers it.
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("UPDATE completions SET latency_seconds = 30")
    planned = plan(4)
    assert asked("gpu") > planned
    planned = plan(1000)
    assert asked("gpu") == planned


def test_a_queue_that_no_worker_serves_does_not_grow(ctx: Context, store: SqlStore) -> None:
    ctx = replace(ctx, pace=Pace(redeliver_seconds=0.0))
    measured(ctx)
    assert isinstance(ctx.executor, InlineExecutor)
    waiting = ctx.executor.queued("generate")
    assert waiting
    for _ in range(20):
        steps.reap_all(ctx)
    assert ctx.executor.queued("generate") == waiting
    ctx.executor._messages.popleft()
    steps.reap_all(ctx)
    assert waiting <= ctx.executor.queued("generate") <= 2 * waiting, "one was lost"
    ctx.executor._messages.clear()
    steps.reap_all(ctx)
    assert ctx.executor.queued("generate") == waiting, "all were lost"
