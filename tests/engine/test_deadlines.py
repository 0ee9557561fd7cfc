"""At the deadline of a cohort, it is judged with what was measured; the clock is the ledger's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest

from app.adapters.store.leases import LeaseRenewer
from app.domain.run import Run, RunState
from app.domain.search.archive import best, everyone_together
from app.domain.search.cohort import CutReason, State, Verdict
from app.domain.search.promotion import at_deadline
from app.domain.search.recipes import RECIPES
from app.domain.search.recipes.greedy import fittest
from app.domain.search.strategy import Barrier, RecipeInputs, Strategy, fixed
from app.engine import advance as engine_advance
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.reports.progress import Progress, fold
from tests.engine.conftest import new_run, table, with_process
from tests.engine.executors import RecordedMessages
from tests.engine.test_interleavings import top_half
from tests.engine.test_withdrawal import Endless, Silent, Texts, renewing  # noqa: F401  a fixture
from tests.engine.toy import problem

DEADLINE = 3600.0
SIZE = 4


@dataclass(frozen=True)
class WaitsForAll:
    """Admits the better half of four children, once all of them are measured."""

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        return Strategy(
            everyone_together,
            best(2),
            fittest,
            top_half(inputs.stages),
            size=fixed(SIZE),
            barrier=Barrier.ISLAND,
            deadline_seconds=DEADLINE,
        )


@pytest.fixture
def pass_time(database: str) -> Callable[[float], None]:
    """Returns what lets so many seconds pass since every step of the ledger was begun."""

    def passes(seconds: float) -> None:
        with psycopg.connect(database.replace("+psycopg", "")) as connection:
            connection.execute(
                "UPDATE proposals SET begun_at = begun_at - %s * interval '1 second'", (seconds,)
            )

    return passes


@pytest.fixture
def waiting(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> tuple[Context, Run, tuple[int, ...], RecordedMessages]:
    """Returns a run whose seed is in, and a cohort of four that is planned; budget: five."""
    monkeypatch.setitem(RECIPES, "waits_for_all", WaitsForAll)  # type: ignore[arg-type]
    messages = RecordedMessages()
    ctx = replace(ctx, executor=messages, pace=Pace(redeliver_seconds=0.0, retry_seconds=0.0))
    new = new_run(problem(), budget=SIZE + 1, in_flight=SIZE, islands=1)
    new = replace(new, strategy="waits_for_all", operators={"asked": 1.0})
    run = lifecycle.start(ctx, problem(), new)
    for _ in range(3):
        step, subjects, _ = messages.take()
        table(ctx)[step](*subjects)
    step, proposals, _ = messages.take()
    assert (step, len(proposals)) == ("generate", SIZE)
    return ctx, run, proposals, messages


def answering(ctx: Context, x: float) -> Context:
    return replace(ctx, model=lambda run: Texts(f"x = {x}\n"))


def outcomes(ctx: Context, run: Run) -> dict[int, CutReason | State]:
    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run.id) if not one.seed]
    return {one.ordinal: one.cut or one.state for one in settled}


def read(ctx: Context, run: Run) -> Run:
    with ctx.store.begin() as tx:
        return tx.runs.get(run.id)


def test_at_the_deadline_the_measured_are_judged_and_the_others_are_withdrawn(
    waiting: tuple[Context, Run, tuple[int, ...], RecordedMessages],
    renewing: LeaseRenewer,  # noqa: F811
    pass_time: Callable[[float], None],
) -> None:
    """One child is measured, one is in a sandbox, one is at a model, and one was not begun."""
    ctx, run, proposals, messages = waiting
    ctx = with_process(ctx, keep_lease=renewing.keep)
    sandbox, model = Endless("x = 1.0"), Silent()
    steps.generate(answering(ctx, 1.0), proposals[0])
    _, measured, _ = messages.take()
    steps.evaluate(ctx, *measured)
    steps.generate(answering(ctx, 2.0), proposals[1])
    _, running, _ = messages.take()
    with ThreadPoolExecutor(2) as pool:
        tested = pool.submit(steps.evaluate, replace(ctx, sandbox=sandbox), *running)
        asked = pool.submit(steps.generate, replace(ctx, model=lambda run: model), proposals[2])
        assert sandbox.begun.acquire(timeout=60)
        assert model.begun.acquire(timeout=60)
        steps.produce(ctx, run.id)
        assert outcomes(ctx, run) == {}, "the cohort waits for all until its deadline"

        pass_time(DEADLINE)
        steps.produce(ctx, run.id)
        tested.result(60)
        asked.result(60)

    assert outcomes(ctx, run) == {
        0: State.ADMITTED,
        1: CutReason.WITHDRAWN,
        2: CutReason.WITHDRAWN,
        3: CutReason.RETURNED,
    }
    assert read(ctx, run).proposals == SIZE - 1, "what was not begun costs no budget"
    with ctx.store.begin() as tx:
        assert tx.leases.held(run.id) == 0
        assert tx.proposals.backlog(run.id).unsettled == 0


def _let_one_be_measured_until_the_deadline(
    waiting: tuple[Context, Run, tuple[int, ...], RecordedMessages],
    pass_time: Callable[[float], None],
) -> None:
    ctx, _, proposals, messages = waiting
    steps.generate(answering(ctx, 1.0), proposals[0])
    _, measured, _ = messages.take()
    steps.evaluate(ctx, *measured)
    pass_time(DEADLINE)


def test_the_budget_that_was_given_back_is_planned_again(
    waiting: tuple[Context, Run, tuple[int, ...], RecordedMessages],
    pass_time: Callable[[float], None],
) -> None:
    ctx, run, _, messages = waiting
    _let_one_be_measured_until_the_deadline(waiting, pass_time)
    ctx = answering(ctx, 2.0)

    while True:
        steps.produce(ctx, run.id)
        while messages.messages:
            step, subjects, _ = messages.take()
            for subject in subjects:
                table(ctx)[step](subject)
        if read(ctx, run).state is not RunState.RUNNING:
            break

    run = read(ctx, run)
    assert (run.state, run.proposals) == (RunState.FINISHED, SIZE + 1)
    counted = outcomes(ctx, run)
    returned = sorted(n for n, why in counted.items() if why is CutReason.RETURNED)
    assert returned == [1, 2, 3]
    assert sorted(counted) == list(range(SIZE + 1 + len(returned))) == list(range(run.ordinals))
    with ctx.store.begin() as tx:
        progress: Progress = fold(Progress(), tx.events.read(run.id))
        assert progress.done == sum(tx.history.states(run.id).values()) == SIZE + 1


def test_a_cohort_is_not_late_before_a_worker_has_begun_it(
    waiting: tuple[Context, Run, tuple[int, ...], RecordedMessages],
    pass_time: Callable[[float], None],
) -> None:
    ctx, run, _, _ = waiting
    pass_time(10 * DEADLINE)

    steps.produce(ctx, run.id)

    assert outcomes(ctx, run) == {}


def test_what_is_given_back_while_the_run_is_cancelled_is_there_after_a_resume(
    waiting: tuple[Context, Run, tuple[int, ...], RecordedMessages],
    pass_time: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ctx, run, _, _ = waiting
    _let_one_be_measured_until_the_deadline(waiting, pass_time)
    cancelled: list[bool] = []

    def cancels(*judged: Any) -> Verdict:
        """Judges once the cohort is locked and the run was seen running."""
        cancelled.append(lifecycle.cancel(ctx, run.id))
        return at_deadline(*judged)

    monkeypatch.setattr(engine_advance, "at_deadline", cancels)
    steps.produce(ctx, run.id)

    assert cancelled == [True]
    assert sorted(outcomes(ctx, run).values()) == [State.ADMITTED, *[CutReason.RETURNED] * 3]
    assert (read(ctx, run).state, read(ctx, run).proposals) == (RunState.CANCELLED, 1)
