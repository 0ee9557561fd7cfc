"""Cohorts of several proposals: their size, the budget, barriers, and when the next is planned."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.domain.operator import Brief, Conversation, Offspring, Operator
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.run import Run, RunState
from app.domain.search.archive import best, everyone_together
from app.domain.search.promotion import cascade
from app.domain.search.recipes import RECIPES
from app.domain.search.strategy import (
    Barrier,
    Lineage,
    RecipeInputs,
    Size,
    Strategy,
    fixed,
)
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.runs import NewRun
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.executors import RecordedMessages
from tests.engine.toy import problem

Register = Callable[..., None]


@pytest.fixture
def podium(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Registers a recipe with one podium an island, and cohorts as the test has them."""

    def register(size: Size, barrier: Barrier = Barrier.ISLAND) -> None:
        @dataclass(frozen=True)
        class Podium:
            def strategy(self, inputs: RecipeInputs) -> Strategy:
                return Strategy(
                    everyone_together,
                    best(2),
                    lambda island, rng: Lineage(island.best(1), island.best(1, skip=1)),
                    cascade(inputs.stages),
                    size=size,
                    barrier=barrier,
                )

        monkeypatch.setitem(RECIPES, "podium", Podium)  # type: ignore[arg-type]

    return register


def new(toy: Problem, **settings: Any) -> NewRun:
    return replace(new_run(toy, **settings), strategy="podium")


def read(ctx: Context, run: int) -> Run:
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


@pytest.mark.parametrize("barrier", list(Barrier))
@pytest.mark.parametrize("in_flight", [1, 64])
def test_cohorts_larger_than_the_limits_meet_the_budget_exactly(
    ctx: Context, podium: Register, in_flight: int, barrier: Barrier
) -> None:
    podium(fixed(4), barrier)

    run_id = run_to_the_end(ctx, problem(), new(problem(), budget=10, in_flight=in_flight))

    run = read(ctx, run_id)
    assert (run.state, run.proposals) == (RunState.FINISHED, 10)
    assert run.cohorts == 3


def started(ctx: Context, toy: Problem, run: NewRun) -> tuple[int, RecordedMessages]:
    """Starts a run and settles its seeds; whatever is planned after that is only enqueued."""
    queue = RecordedMessages()
    ctx = replace(ctx, executor=queue)
    started = lifecycle.start(ctx, toy, run)
    _, cohorts, _ = queue.take()
    steps.generate(ctx, *cohorts)
    _, trials, _ = queue.take()
    steps.evaluate(ctx, *trials)
    queue.messages.clear()
    return started.id, queue


def planned(ctx: Context, queue: RecordedMessages, run: int, size: int) -> list[tuple[int, ...]]:
    """Returns the proposals of each cohort that is planned now."""
    steps.produce(replace(ctx, executor=queue), run)
    proposals = queue.take()[1] if queue.messages else ()
    assert len(proposals) % size == 0
    return [tuple(proposals[n : n + size]) for n in range(0, len(proposals), size)]


def settle(ctx: Context, queue: RecordedMessages, cohort: tuple[int, ...]) -> None:
    """Generates a cohort's children one by one, and evaluates them trial by trial."""
    ctx = replace(ctx, executor=queue)
    for proposal in cohort:
        steps.generate(ctx, proposal)
    for step, subjects, _ in [queue.take() for _ in range(len(queue.messages))]:
        if step == "evaluate":
            for trial in subjects:
                steps.evaluate(ctx, trial)


def test_an_idle_island_gets_its_next_cohort_while_another_is_busy(
    ctx: Context, podium: Register
) -> None:
    podium(fixed(3), Barrier.ISLAND)
    run, queue = started(ctx, problem(), new(problem(), in_flight=64, islands=2))
    first, _ = planned(ctx, queue, run, 3)
    assert planned(ctx, queue, run, 3) == []

    settle(ctx, queue, first)
    queue.messages.clear()

    assert len(planned(ctx, queue, run, 3)) == 1


def test_a_generation_begins_when_all_islands_have_ended_the_last(
    ctx: Context, podium: Register
) -> None:
    podium(fixed(3), Barrier.RUN)
    run, queue = started(ctx, problem(), new(problem(), in_flight=64, islands=2))
    first, second = planned(ctx, queue, run, 3)

    settle(ctx, queue, first)
    queue.messages.clear()
    assert planned(ctx, queue, run, 3) == []
    settle(ctx, queue, second)
    queue.messages.clear()

    assert len(planned(ctx, queue, run, 3)) == 2


def test_a_cohort_that_closes_enqueues_planning_at_once(ctx: Context, podium: Register) -> None:
    podium(fixed(5), Barrier.RUN)
    run, queue = started(ctx, problem(), new(problem(), in_flight=64, islands=1))
    [cohort] = planned(ctx, queue, run, 5)

    settle(ctx, queue, cohort)

    assert ("produce", (run,)) in {(step, tuple(subjects)) for step, subjects, _ in queue.messages}


def crashing(brief: Brief) -> Conversation:
    yield from ()
    return [Offspring(Program(f"x = crash  # {draft.ordinal}\n")) for draft in brief.drafts]


def test_an_island_may_widen_its_cohorts_while_nothing_is_admitted_and_then_finish(
    ctx: Context, podium: Register
) -> None:
    podium(lambda island: (1, 2, 4, 0)[island.barren], Barrier.ISLAND)
    ctx = replace(
        ctx, operators={**ctx.operators, "nudge": Operator("nudge", crashing, asks_model=False)}
    )

    run_id = run_to_the_end(ctx, problem(), new(problem(), budget=100, in_flight=64, islands=1))

    run = read(ctx, run_id)
    assert (run.state, run.reason) == (RunState.FINISHED, "every island is finished")
    assert (run.cohorts, run.proposals) == (3, 7)


def test_a_run_stops_when_enough_programs_were_admitted(ctx: Context, podium: Register) -> None:
    podium(fixed(1), Barrier.ISLAND)

    run_id = run_to_the_end(ctx, problem(), new(problem(), budget=100, islands=1, stop_admitted=3))

    run = read(ctx, run_id)
    assert run.reason == "3 programs were admitted, as search.stop_admitted asks"
    with ctx.store.begin() as tx:
        assert tx.history.admitted(run_id, 10) == 3
