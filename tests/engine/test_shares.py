"""A free place takes a trial of the run that has the fewest at work for its weight."""

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from app.cli.doctor_services import _places
from app.domain.problem import Job, Outcome
from app.domain.run import Run, RunState
from app.engine import lifecycle, steps
from app.engine.back_pressure import shared_capacity
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Stop
from app.ports.workers import Capacity, Worker
from app.reports.summary import read_places
from tests.engine.conftest import new_run, table, with_process
from tests.engine.executors import RecordedMessages, UnreliableQueue, served
from tests.engine.toy import ToySandbox, problem


class Slow(ToySandbox):
    """Takes some time for a trial, and knows how many ran at once."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.seconds)
        with self._lock:
            self.at_once -= 1
        return super().run(job)


def started(ctx: Context, name: str, *, in_process: bool = False, **queue: Any) -> Run:
    toy = problem()
    new = new_run(toy, budget=16, in_flight=8, islands=1)
    settings = {**new.settings, "queue": {**new.settings["queue"], **queue}}
    new = replace(new, name=name, settings=settings, in_process=in_process)
    return lifecycle.start(ctx, toy, new)


def places(ctx: Context, number: int) -> None:
    with ctx.store.begin() as tx:
        tx.workers.record(Worker("host-1", "cpu"), {}, Capacity(None, number))


def waiting_trials(ctx: Context, *runs: Run) -> list[list[tuple[int, ...]]]:
    """Returns the messages of the trials of each run's first children; all seeds are in."""
    executor = ctx.executor
    assert isinstance(executor, RecordedMessages)
    while executor.messages:
        step, subjects, _ = executor.take()
        if step != "produce":
            table(ctx)[step](*subjects)
    for run in runs:
        steps.produce(ctx, run.id)
    messages: dict[int, list[tuple[int, ...]]] = {run.id: [] for run in runs}
    while executor.messages:
        step, subjects, together = executor.take()
        if step == "generate":
            steps.generate(ctx, *subjects)
        if step == "evaluate":
            with ctx.store.begin() as tx:
                [owner] = tx.leases.runs((), subjects)
            batches = range(0, len(subjects), together)
            messages[owner] += [subjects[n : n + together] for n in batches]
    return list(messages.values())


def at_work(ctx: Context) -> dict[int, int]:
    with ctx.store.begin() as tx:
        return {queue.claimant.run: queue.claimant.at_work for queue in tx.trials.queues(())}


def begin(ctx: Context, *trials: int) -> Counter[int]:
    """Begins the trials of a message and leaves them at work; returns of which runs."""
    begun: Counter[int] = Counter()

    def note(run: int) -> Any:
        begun[run] += 1
        raise SystemExit("the worker is killed while the trial runs")

    with suppress(SystemExit):
        steps.evaluate(with_process(ctx, count_work=note), *trials)
    return begun


@pytest.fixture
def ctx(ctx: Context) -> Context:
    return replace(ctx, executor=RecordedMessages(), pace=Pace(place_seconds=0.0))


def test_a_place_takes_a_trial_of_the_other_run_and_the_message_waits(ctx: Context) -> None:
    places(ctx, 4)
    first, second = started(ctx, "one"), started(ctx, "other", weight=2.0)
    ones, others = waiting_trials(ctx, first, second)
    begun = [begin(ctx, *message) for message in ones[:3]]
    assert begun == [{first.id: 1}, {second.id: 1}, {second.id: 1}]  # 1 and 2 are their weights
    assert at_work(ctx) == {first.id: 1, second.id: 2}
    assert begin(ctx, *ones[3]) == {first.id: 1}
    assert begin(ctx, *others[3]) == {}  # four places are taken, and no run has nothing at work
    assert ctx.executor.take() == ("evaluate", others[3], 1)  # type: ignore[attr-defined]


def test_the_first_trial_of_a_run_does_not_wait_for_the_end_of_another(ctx: Context) -> None:
    places(ctx, 2)
    first, second = started(ctx, "one"), started(ctx, "other")
    ones, others = waiting_trials(ctx, first, second)
    with ctx.store.begin() as tx:
        taken = tx.trials.claim(
            [trial for message in ones[:2] for trial in message], 60, attempts=5
        )
    assert len(taken) == 2
    assert begin(ctx, *others[0]) == {second.id: 1}
    assert at_work(ctx) == {first.id: 2, second.id: 1}
    assert begin(ctx, *others[1]) == {}
    assert begin(ctx, *ones[2]) == {}


def test_a_message_whose_trial_was_taken_takes_no_other(ctx: Context) -> None:
    first, second = started(ctx, "one"), started(ctx, "other")
    ones, _ = waiting_trials(ctx, first, second)
    steps.evaluate(ctx, *ones[0])
    before = at_work(ctx)
    assert begin(ctx, *ones[0]) == {}
    assert at_work(ctx) == before


def test_a_run_plans_for_its_share_of_the_places_and_for_its_limit(ctx: Context) -> None:
    first, second = started(ctx, "one"), started(ctx, "other", trials_at_once=3)
    [ones] = waiting_trials(ctx, first)
    assert len(ones) >= 6  # under evaluation; the other's seed is in, and nothing is planned
    with ctx.store.begin() as tx:
        assert shared_capacity(tx, tx.runs.get(first.id)) == Capacity(None, None)
        assert shared_capacity(tx, tx.runs.get(second.id)) == Capacity(None, 3)
        tx.workers.record(Worker("host-1", "cpu"), {}, Capacity(32, 12))
        assert shared_capacity(tx, tx.runs.get(first.id)) == Capacity(32, 12)  # all is left to it
        assert shared_capacity(tx, tx.runs.get(second.id)) == Capacity(32, 3)
        tx.workers.record(Worker("host-1", "cpu"), {}, Capacity(32, 4))
        assert shared_capacity(tx, tx.runs.get(second.id)) == Capacity(32, 2)


def test_a_person_sees_the_places_of_the_workers_and_what_is_in_them(
    ctx: Context, database: str
) -> None:
    first, second = started(ctx, "one"), started(ctx, "other")
    ones, others = waiting_trials(ctx, first, second)
    assert not _places(database, None).ok
    with ctx.store.begin() as tx:
        assert read_places(tx, first.id).text == "no worker has reported any"
        tx.workers.record(Worker("host-1", "cpu"), {}, Capacity(None, 4))
        tx.workers.record(Worker("host-2", "gpu"), {}, Capacity(32, None))
    begin(ctx, *ones[0])
    begin(ctx, *others[0])
    with ctx.store.begin() as tx:
        text = read_places(tx, first.id).text
    assert text == "32 at models, 4 in sandboxes; 2 trials at work, 1 of this run"
    found = _places(database, None)
    assert found.ok
    assert found.detail == "32 requests at models, 4 trials at once, over all workers"


@pytest.mark.parametrize("limit", [1, 2])
def test_a_run_has_no_more_trials_at_work_than_its_limit(ctx: Context, limit: int) -> None:
    queue, sandbox = UnreliableQueue(7), Slow(0.02)
    ctx = replace(
        ctx,
        executor=queue,
        sandbox=sandbox,
        pace=Pace(redeliver_seconds=0.2, place_seconds=0.005),
    )
    ctx = with_process(ctx, wait=time.sleep)
    places(ctx, 8)
    run = started(ctx, "timing", trials_at_once=limit)
    served(queue, ctx, run, [ctx] * 6, seconds=240)
    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).state is RunState.FINISHED
    assert 1 <= sandbox.most_at_once <= limit


def test_workers_leave_a_run_to_the_one_process_that_works_on_it(ctx: Context) -> None:
    run = started(ctx, "alone", in_process=True)
    executor = ctx.executor
    assert isinstance(executor, RecordedMessages)
    executor.messages.clear()

    assert not steps.produce_all(ctx)
    steps.reap_all(replace(ctx, pace=Pace(redeliver_seconds=0.0)))

    assert not executor.messages
    with ctx.store.begin() as tx:
        assert tx.runs.running(in_process=True) == [run.id]
        assert tx.proposals.in_flight() == []


def test_a_run_of_one_process_takes_no_trial_of_others_and_they_none_of_its(ctx: Context) -> None:
    places(ctx, 4)
    alone, other = started(ctx, "alone", in_process=True), started(ctx, "other")
    mine, others = waiting_trials(ctx, alone, other)

    assert [begin(ctx, *message) for message in others[:2]] == [{other.id: 1}] * 2
    assert [begin(ctx, *message) for message in mine[:3]] == [{alone.id: 1}] * 3
    assert at_work(ctx) == {other.id: 2}


def test_a_run_of_one_process_plans_for_none_of_the_places_of_workers(ctx: Context) -> None:
    places(ctx, 4)
    run, limited = (
        started(ctx, "alone", in_process=True),
        started(ctx, "limited", in_process=True, trials_at_once=2),
    )

    with ctx.store.begin() as tx:
        assert shared_capacity(tx, run) == Capacity(None, None)
        assert shared_capacity(tx, limited) == Capacity(None, 2)
