"""Locks are taken in one order: the holder of a cohort may lock its run, whatever others do."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from app.domain.evaluation import Evaluation, Failure, FailureKind
from app.domain.events import Noticed
from app.domain.operator import Completion, Draft, Prompt
from app.domain.run import Run
from app.domain.search.budget import Charge
from app.domain.search.cohort import Cohort, CohortId, State
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.cohorts import MemberResult
from app.ports.completions import Asker, Turn
from app.ports.trials import TrialResult
from tests.engine.executors import RecordedMessages, planned

FAILED = Failure(FailureKind.RUNTIME, "no")


@pytest.fixture
def ctx(ctx: Context) -> Context:
    return replace(ctx, executor=RecordedMessages())


def blocked(database: str) -> bool:
    with psycopg.connect(database.replace("+psycopg", "")) as c:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return c.execute(query).fetchone() != (0,)


def settles(database: str, work: Callable[[], Any]) -> Future[Any]:
    """Starts work in a thread; returns once it has ended or waits for a lock."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    deadline = time.monotonic() + 60
    while not future.done() and not blocked(database):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return future


def leased(ctx: Context, cohorts: tuple[CohortId, ...]) -> list[Cohort]:
    with ctx.store.begin() as tx:
        return [one.cohort for _, one in tx.proposals.claim(cohorts, 30, attempts=5)]


def turn(cohort: Cohort) -> Turn:
    [member] = cohort.members
    draft = Draft(member.ordinal, cohort.island, 0, 1, ())
    said = Completion("x = 1.0", "numbers", completion_tokens=7)
    return Turn(
        cohort,
        Asker.OPERATOR,
        0,
        Charge(tokens=7),
        [Prompt("", "", member.ordinal)],
        [said],
        [draft],
    )


def save(ctx: Context, *turns: Turn) -> None:
    with ctx.store.begin() as tx:
        tx.completions.save(turns)


def resume(ctx: Context, run: Run, cohort: Cohort) -> None:
    lifecycle.resume(ctx, run.id)


@pytest.mark.parametrize(
    "other",
    [lambda ctx, run, cohort: save(ctx, turn(cohort)), resume],
    ids=["a turn is saved", "the run is resumed"],
)
def test_the_holder_of_a_cohort_may_go_on_to_its_run(
    ctx: Context, database: str, other: Callable[[Context, Run, Cohort], None]
) -> None:
    run, cohorts = planned(ctx, 1)
    [cohort] = leased(ctx, cohorts)
    lifecycle.pause(ctx, run.id)
    with ctx.store.begin() as tx:
        tx.cohorts.lock(cohort.id)
        done = settles(database, lambda: other(ctx, run, cohort))
        tx.events.emit(run.id, Noticed(text="first"))
    done.result(60)


def locked(database: str, table: str, lower: int, higher: int, work: Callable[[], Any]) -> None:
    """Locks two rows in the order of their ids, while work that needs both is under way.

    The lower one is moved behind the other on disk before: statements must not lock in that order.
    """
    with psycopg.connect(database.replace("+psycopg", "")) as c:
        moved = "visible_at = coalesce(visible_at, now()) + interval '1 millisecond'"
        c.execute(f"UPDATE {table} SET {moved} WHERE id = %s", [lower])
    with psycopg.connect(database.replace("+psycopg", "")) as c:
        query = f"SELECT FROM {table} WHERE id = %s FOR UPDATE"
        c.execute(query, [lower])
        done = settles(database, work)
        c.execute(query, [higher])
    done.result(60)


def test_turns_saved_together_lock_their_proposals_in_order(ctx: Context, database: str) -> None:
    _, cohorts = planned(ctx, 2)
    first, second = leased(ctx, cohorts)
    ids = [one.members[0].id for one in (first, second)]
    locked(database, "proposals", *ids, lambda: save(ctx, turn(second), turn(first)))


def test_results_recorded_together_lock_their_trials_in_order(ctx: Context, database: str) -> None:
    _, cohorts = planned(ctx, 12)
    steps.generate(ctx, *cohorts)
    _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        first, second = [one for _, one in tx.trials.claim(trials[:2], 30, attempts=5)]
    failed = Evaluation(failure=FAILED, verified=True)

    def record() -> None:
        with ctx.store.begin() as tx:
            tx.trials.record([TrialResult(one.id, one.cohort, failed) for one in (second, first)])

    locked(database, "trials", first.id, second.id, record)


def test_children_entered_together_lock_their_proposals_in_order(
    ctx: Context, database: str
) -> None:
    _, cohorts = planned(ctx, 2)
    first, second = leased(ctx, cohorts)
    ids = [one.members[0].id for one in (first, second)]
    entries = [MemberResult(one, State.FAILED, failure=FAILED) for one in reversed(ids)]

    def enter() -> None:
        with ctx.store.begin() as tx:
            tx.cohorts.lock_planned(cohorts)
            tx.cohorts.enter([second, first], entries)

    locked(database, "proposals", *ids, enter)
