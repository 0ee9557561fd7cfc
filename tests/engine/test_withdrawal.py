"""What is not wanted any more stops where it runs, is begun no more, and is accounted for once."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import psycopg
import pytest

from app.adapters.store.leases import CHANNEL, LeaseRenewer
from app.adapters.store.sql import SqlStore
from app.domain.evaluation import Trial
from app.domain.operator import Completion, Prompt
from app.domain.problem import Job, Outcome
from app.domain.run import Run, RunState
from app.domain.search.archive import IslandView, best, everyone_together
from app.domain.search.budget import Budget
from app.domain.search.cohort import Cohort, CutReason, Verdict
from app.domain.search.recipes import RECIPES
from app.domain.search.recipes.greedy import fittest
from app.domain.search.strategy import RecipeInputs, Strategy, fixed
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Stop, Stopped
from tests.engine.conftest import new_run, table, with_process
from tests.engine.executors import Numbers, RecordedMessages, planned
from tests.engine.test_budgets import MAX_TOKENS, PROMPT_TOKENS, Metered, asking, drained
from tests.engine.toy import ToySandbox, problem

FOR_EVER = 1e6
"""Seconds; a lease of this length is not renewed during a test."""


class Endless(ToySandbox):
    """Trials of children end only when they are asked to stop."""

    def __init__(self, ending: str = "x = 0.0") -> None:
        super().__init__()
        self._ending = ending
        self.begun = threading.Semaphore(0)
        self.stopped = 0

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if job.programs[0][1].decode().startswith(self._ending):
            return super().run(job)
        stop_now(stop, self.begun.release)
        self.stopped += 1
        raise Stopped("the trial was withdrawn")


class Silent(Numbers):
    """Never answers; what it was asked may be billed."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        stop_now(stop, self.begun.release)
        raise Stopped("the request was dropped", unanswered=len(prompts))


def stop_now(stop: Stop, begun: Callable[[], None]) -> None:
    """Waits until the work is asked to stop."""
    asked = threading.Event()
    with stop.then(asked.set):
        begun()
        assert asked.wait(60), "the work was not asked to stop"


@pytest.fixture
def listening(store: SqlStore) -> Iterator[LeaseRenewer]:
    """Learns of withdrawals by notices alone."""
    connected = threading.Event()

    def listen() -> Iterator[bool]:
        for notified in store.listen(CHANNEL, 0.05):
            connected.set()
            yield notified

    renewer = LeaseRenewer(store, FOR_EVER, listen)
    with renewer.keep("trial", 0):
        assert connected.wait(60)
        yield renewer
    renewer.close()


@pytest.fixture
def renewing(store: SqlStore) -> Iterator[LeaseRenewer]:
    """Learns of withdrawals at renewals alone."""
    renewer = LeaseRenewer(store, 0.3)
    yield renewer
    renewer.close()


@pytest.fixture(params=["listening", "renewing"])
def renewer(request: pytest.FixtureRequest) -> LeaseRenewer:
    chosen: LeaseRenewer = request.getfixturevalue(request.param)
    return chosen


def test_a_trial_of_a_cancelled_run_stops_and_is_measured_once_after_a_resume(
    ctx: Context, renewer: LeaseRenewer, database: str
) -> None:
    sandbox, messages = Endless(), RecordedMessages()
    ctx = replace(ctx, sandbox=sandbox, executor=messages)
    ctx = with_process(ctx, keep_lease=renewer.keep)
    run, proposals = planned(ctx, 1)
    steps.generate(ctx, *proposals)
    step, trials, _ = messages.take()
    assert step == "evaluate"
    with ThreadPoolExecutor(1) as pool:
        evaluated = pool.submit(steps.evaluate, ctx, *trials)
        assert sandbox.begun.acquire(timeout=60)
        assert lifecycle.cancel(ctx, run.id)
        evaluated.result(60)
    assert sandbox.stopped == 1
    assert [lease(database, trial) for trial in trials] == [(False, 0, False)]

    ctx = replace(ctx, sandbox=ToySandbox())
    assert lifecycle.resume(ctx, run.id)
    steps.evaluate(ctx, *trials)
    with ctx.store.begin() as tx:
        assert [one.ordinal for one in tx.history.settled(run.id)] == [-1, 0]
        assert tx.runs.get(run.id).proposals == 1


def lease(database: str, trial: int) -> tuple[bool, int, bool]:
    """Returns whether a trial is leased, how often it was attempted, whether it was withdrawn."""
    query = """SELECT coalesce(leased_until > now(), false), attempts, withdrawn
        FROM trials WHERE id = %s"""
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        [found] = connection.execute(query, (trial,)).fetchall()
    return found


def test_a_request_of_a_cancelled_run_is_dropped_and_what_it_may_cost_is_booked_once(
    ctx: Context, renewer: LeaseRenewer
) -> None:
    model = Silent()
    ctx = replace(ctx, model=lambda run: model)
    ctx = with_process(ctx, keep_lease=renewer.keep)
    run = lifecycle.start(ctx, problem(), asking(Budget(1, tokens=100_000), in_flight=1))
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(drained, ctx, run.id)
        assert model.begun.acquire(timeout=60)
        assert lifecycle.cancel(ctx, run.id)
        cancelled = going.result(60)
    assert cancelled.state is RunState.CANCELLED
    assert cancelled.tokens > 0

    metered = Metered()
    ctx = replace(ctx, model=lambda run: metered)
    assert lifecycle.resume(ctx, run.id)
    finished = drained(ctx, run.id)
    assert finished.state is RunState.FINISHED, finished.reason
    assert finished.proposals == 1
    answered = sum(PROMPT_TOKENS + 1 + 7 * turn % MAX_TOKENS for turn in (1, 2))
    assert finished.tokens == cancelled.tokens + answered


@dataclass(frozen=True)
class FirstWins:
    """Admits the first of three programs that was measured, and cuts the others."""

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        return Strategy(everyone_together, best(1), fittest, first_wins, size=fixed(3))


def first_wins(cohort: Cohort, field: IslandView) -> Verdict:
    wanted = [Trial("evaluate", (member.program or "",)) for member in cohort.living]
    won = next((trial for trial in wanted if cohort.trials.get(trial) is not None), None)
    if won is None:
        return Verdict(tuple(trial for trial in wanted if trial not in cohort.trials))
    losers = [m.id for m in (*cohort.living, *cohort.pending) if m.program not in won.players]
    return Verdict(admit=won.players, cut=tuple(losers))


def test_those_who_lost_a_race_stop_at_the_model_and_in_the_sandbox_and_begin_no_more(
    ctx: Context, renewer: LeaseRenewer, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """One loser waits in the queue, one is in a sandbox, one is with the model."""
    monkeypatch.setitem(RECIPES, "first_wins", FirstWins)  # type: ignore[arg-type]
    ctx, run, proposals, _ = racing(ctx, renewer)
    sandbox, model = Endless("x = 1.0"), Silent()
    winner = replace(ctx, model=lambda run: Texts("x = 1.0\n"))
    loser = replace(ctx, model=lambda run: Texts("x = 2.0\n"), sandbox=sandbox)
    asking = replace(ctx, model=lambda run: model)
    messages = ctx.executor
    assert isinstance(messages, RecordedMessages)
    with ThreadPoolExecutor(2) as pool:
        steps.generate(winner, proposals[0])
        _, won, _ = messages.take()
        steps.generate(loser, proposals[1])
        _, lost, _ = messages.take()
        tested = pool.submit(steps.evaluate, loser, *lost)
        asked = pool.submit(steps.generate, asking, proposals[2])
        assert sandbox.begun.acquire(timeout=60)
        assert model.begun.acquire(timeout=60)
        steps.evaluate(winner, *won)
        tested.result(60)
        asked.result(60)
    assert [lease(database, trial) for trial in lost] == [(False, 0, True)]
    with ctx.store.begin() as tx:
        settled = {one.ordinal: one.cut for one in tx.history.settled(run.id)}
        assert tx.trials.queues(list(lost)) == []
        assert tx.trials.claim(lost, 30.0, attempts=5) == []
        assert tx.leases.overdue(run.id, 30.0) == ({}, [])
        assert tx.leases.held(run.id) == 0
        assert tx.proposals.backlog(run.id).unsettled == 0
    assert settled == {-1: None, 0: None, 1: CutReason.WITHDRAWN, 2: CutReason.WITHDRAWN}


class Texts(Numbers):
    """Answers with one text."""

    def __init__(self, text: str) -> None:
        super().__init__(text=text)


def racing(
    ctx: Context, renewer: LeaseRenewer
) -> tuple[Context, Run, tuple[int, ...], RecordedMessages]:
    """Returns a run whose seed is in, and a cohort of three that is planned."""
    messages = RecordedMessages()
    pace = Pace(redeliver_seconds=0.0, retry_seconds=0.0)
    ctx = replace(ctx, executor=messages, pace=pace)
    ctx = with_process(ctx, keep_lease=renewer.keep)
    new = new_run(problem(), budget=3, in_flight=4, islands=1)
    new = replace(new, strategy="first_wins", operators={"asked": 1.0})
    run = lifecycle.start(ctx, problem(), new)
    for _ in range(3):
        step, subjects, _ = messages.take()
        table(ctx)[step](*subjects)
    step, proposals, _ = messages.take()
    assert (step, len(proposals)) == ("generate", 3)
    return ctx, run, proposals, messages


def test_a_trial_that_waits_for_its_lease_when_it_loses_is_leased_no_more(
    ctx: Context, renewing: LeaseRenewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "first_wins", FirstWins)  # type: ignore[arg-type]
    ctx, run, proposals, messages = racing(ctx, renewing)
    queued = []
    for proposal, text in zip(proposals, ("x = 1.0\n", "x = 2.0\n", "x = 3.0\n"), strict=True):
        steps.generate(replace(ctx, model=lambda run, text=text: Texts(text)), proposal)
        queued.append(messages.take()[1])
    for trials in queued:
        steps.evaluate(ctx, *trials)
    sandbox = ctx.sandbox
    assert isinstance(sandbox, ToySandbox)
    assert sandbox.runs == 2, "the seed and the winner"
    with ctx.store.begin() as tx:
        assert tx.proposals.backlog(run.id).unsettled == 0


def test_a_lost_connection_of_the_notices_is_made_again(
    ctx: Context, store: SqlStore, database: str
) -> None:
    connected = threading.Semaphore(0)

    def listen() -> Iterator[bool]:
        for notified in store.listen(CHANNEL, 0.05):
            if notified:
                connected.release()
            yield notified

    renewer = LeaseRenewer(store, FOR_EVER, listen)
    with renewer.keep("trial", 0):
        assert connected.acquire(timeout=60)
        cut = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE query LIKE 'LISTEN%' AND datname = current_database()"""
        with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as connection:
            assert connection.execute(cut).fetchall() == [(True,)]
        assert connected.acquire(timeout=60)
    renewer.close()
