"""A project's quotas hold its runs back, and say so; nothing fails."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.run import Run, RunState
from app.domain.search.budget import Charge
from app.domain.search.quotas import Quota
from app.engine import lifecycle, steps
from app.engine.back_pressure import shared_capacity
from app.engine.context import Context
from app.ports.completions import Asker, Turn
from app.ports.workers import Capacity, Worker
from app.reports.waiting import QueueState, waiting_of
from tests.engine.conftest import new_run, table
from tests.engine.executors import RecordedMessages
from tests.engine.toy import problem


@pytest.fixture
def ctx(ctx: Context) -> Context:
    return replace(ctx, executor=RecordedMessages())


def begun(ctx: Context, name: str, budget: int = 12, **queue: Any) -> Run:
    """Returns a run whose seed is in, and which may have eight proposals in flight."""
    toy = problem()
    new = new_run(toy, budget=budget, in_flight=8)
    queue = {**new.settings["queue"], "project": "team", **queue}
    new = replace(new, name=name, settings={**new.settings, "queue": queue})
    run = lifecycle.start(ctx, toy, new)
    work(ctx, "generate", "evaluate")
    return run


def work(ctx: Context, *names: str) -> None:
    """Runs the steps of the messages of these names, in order, and forgets the others."""
    messages: list[Any] = ctx.executor.messages  # type: ignore[attr-defined]
    while messages:
        step, subjects, _ = messages.pop(0)
        if step in names:
            for subject in subjects:
                table(ctx)[step](subject)


def planned(ctx: Context, run: Run) -> int:
    steps.produce(ctx, run.id)
    with ctx.store.begin() as tx:
        return tx.proposals.backlog(run.id).unsettled


def places(ctx: Context, run: Run) -> int:
    """Returns the places that an autoscaler would give a run."""
    with ctx.store.begin() as tx:
        return sum(one.places for one in tx.workers.demand(run.id) if one.queue == "gpu")


def put(ctx: Context, **quotas: Any) -> None:
    with ctx.store.begin() as tx:
        tx.projects.put(Quota("team", **quotas))


def said(ctx: Context, run: Run) -> str:
    with ctx.store.begin() as tx:
        return waiting_of(tx, tx.runs.get(run.id), QueueState())


def test_proposals_in_flight_are_counted_over_all_runs_of_a_project(ctx: Context) -> None:
    put(ctx, proposals=10)
    first, second, other = begun(ctx, "one"), begun(ctx, "two"), begun(ctx, "alone", project="")
    assert [planned(ctx, run) for run in (first, second, other)] == [8, 2, 8]
    assert "project 'team' has 10 proposals in flight, and its quota is 10" in said(ctx, second)
    assert "quota" not in said(ctx, other)
    work(ctx, "generate", "evaluate")
    while planned(ctx, second):
        work(ctx, "generate", "evaluate", "produce")
    with ctx.store.begin() as tx:
        assert tx.runs.get(second.id).state is RunState.FINISHED
        assert tx.projects.use("team").proposals <= 10


def test_a_cohort_that_is_larger_than_the_quota_is_planned_alone(ctx: Context) -> None:
    put(ctx, proposals=0)
    run = begun(ctx, "one")
    # A quota of nothing is one.
    assert planned(ctx, run) == 0
    put(ctx, proposals=1)
    assert planned(ctx, run) == 1


def test_runs_at_once_are_those_of_the_highest_priority_then_the_oldest(ctx: Context) -> None:
    put(ctx, runs=1)
    old, new, urgent = begun(ctx, "old"), begun(ctx, "new"), begun(ctx, "urgent", priority=5)
    assert [planned(ctx, run) for run in (old, new, urgent)] == [0, 0, 8]
    assert "may have 1 runs at once, and 1 are before this one" in said(ctx, old)
    assert [places(ctx, run) for run in (old, new, urgent)] == [0, 0, 8]
    lifecycle.pause(ctx, urgent.id)
    assert [planned(ctx, run) for run in (old, new)] == [8, 0]
    assert [places(ctx, run) for run in (old, new)] == [8, 0]
    with ctx.store.begin() as tx:
        assert tx.projects.remove("team")
    assert planned(ctx, new) == 8


def test_tokens_are_counted_from_the_beginning_of_the_day(ctx: Context) -> None:
    run = begun(ctx, "one", budget=40)
    put(ctx, tokens_per_day=100, usd_per_day=5.0)
    assert planned(ctx, run) == 8
    with ctx.store.begin() as tx:
        [cohort, *_] = tx.cohorts.unsettled(run.id)
        _, locked = tx.cohorts.lock(cohort)
        spent = Charge(tokens=100, cost_usd=1.0)
        tx.completions.save([Turn(locked, Asker.OPERATOR, 0, spent)])
    work(ctx, "generate", "evaluate")
    assert planned(ctx, run) <= 8
    assert "has spent 100 tokens today (UTC), and its quota is 100 a day" in said(ctx, run)
    with ctx.store.begin() as tx:
        connection: Any = tx.projects
        # Another day began.
        connection._c.write("UPDATE project_days SET tokens = 100", {})
    assert said(ctx, run).find("tokens today") == -1
    put(ctx, usd_per_day=1.0)
    assert "has spent 1.00 US dollars today (UTC)" in said(ctx, run)


def test_projects_share_the_places_before_their_runs_do(ctx: Context) -> None:
    with ctx.store.begin() as tx:
        tx.projects.put(Quota("team", weight=3.0))
        tx.workers.record(Worker("host-1", "cpu"), {}, Capacity(16, 16))
    alone = begun(ctx, "alone", project="")
    one, two = begun(ctx, "one"), begun(ctx, "two", priority=1)
    for run in (alone, one, two):
        assert planned(ctx, run) == 8
    work(ctx, "generate")
    with ctx.store.begin() as tx:
        tx.workers.record(Worker("host-1", "cpu"), {}, Capacity(8, 8))
        sandboxes = [shared_capacity(tx, tx.runs.get(run.id)).sandbox for run in (alone, one, two)]
    # The lower priority has what the higher leaves.
    assert sandboxes == [2, 1, 6]
