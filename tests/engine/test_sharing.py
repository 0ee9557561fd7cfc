"""Transactions that threads share: each subject is one thread's, and its run's."""

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import pytest

from app.adapters.store.group_commit import GroupCommit
from app.domain.operator import Draft, Offspring
from app.domain.program import Program
from app.domain.run import RunState
from app.engine import steps
from app.engine.context import Context, Pace
from app.engine.enter import GeneratedChildren, enter_children
from app.engine.process import ALONE, nothing
from tests.engine.conftest import with_process
from tests.engine.executors import Numbers, RecordedMessages, operator_replies, planned, settled
from tests.engine.test_group_commit import until

THREADS = 2


class Together:
    """Has both threads share one kind of transaction; they wait for each other before it."""

    def __init__(self, kind: Hashable) -> None:
        self._kind = kind
        self._barrier = threading.Barrier(THREADS, timeout=60)
        self._lock = threading.Lock()
        self._subjects: list[Any] = []
        self._results: list[Any] = []

    def __call__(
        self,
        kind: Hashable,
        subjects: Sequence[Any],
        work: Callable[[Sequence[Any]], Sequence[Any]],
        after: Callable[[Sequence[Any]], None] = nothing,
        /,
    ) -> list[Any]:
        if kind != self._kind:
            return ALONE.share(kind, subjects, work, after)
        with self._lock:
            place = len(self._subjects)
            self._subjects.extend(subjects)
        leads = self._barrier.wait() == 0
        if leads:
            gathered, self._subjects = self._subjects, []
            self._results = list(work(gathered))
        self._barrier.wait()
        results = self._results
        if leads:
            after(results)
        return results[place : place + len(subjects)]


@pytest.fixture
def ctx(ctx: Context) -> Context:
    return replace(ctx, executor=RecordedMessages())


def at_once(step: Callable[..., None], ctx: Context, subjects: Sequence[int]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(step, ctx, subject) for subject in subjects]:
            done.result()


def test_a_cohort_that_two_threads_lease_at_once_is_generated_by_one(ctx: Context) -> None:
    model = Numbers()
    ctx = replace(ctx, model=lambda run: model)
    run, [cohort] = planned(ctx, 1, "asked")
    at_once(steps.generate, with_process(ctx, share=Together("lease proposals")), [cohort, cohort])
    _, [trial], _ = ctx.executor.take()  # type: ignore[attr-defined]
    assert model.asked == 2  # its operator has two turns
    tested = ctx.sandbox.runs  # type: ignore[attr-defined]
    at_once(steps.evaluate, with_process(ctx, share=Together("lease trials")), [trial, trial])
    assert ctx.sandbox.runs == tested + 1  # type: ignore[attr-defined]
    assert settled(ctx, run) == [0]


def test_cohorts_of_two_runs_leased_at_once_go_each_to_its_own(ctx: Context) -> None:
    run, [first] = planned(ctx, 1, name="one")
    other, [second] = planned(ctx, 1, name="other")
    at_once(steps.generate, with_process(ctx, share=Together("lease proposals")), [first, second])
    trials = [trial for _ in range(2) for trial in ctx.executor.take()[1]]  # type: ignore[attr-defined]
    at_once(steps.evaluate, with_process(ctx, share=Together("lease trials")), trials)
    assert settled(ctx, run) == settled(ctx, other) == [0]


def test_children_that_two_threads_generate_of_one_cohort_are_entered_once(ctx: Context) -> None:
    run, [cohort] = planned(ctx, 1)
    with ctx.store.begin() as tx:
        [(_, leased)] = tx.proposals.claim([cohort], 30, attempts=5)
        cohort_of_one = leased.cohort
        [parent] = tx.archive.island(run.id, cohort_of_one.island).best(1)
    [member] = cohort_of_one.members
    draft = Draft(member.ordinal, cohort_of_one.island, 0, 1, (parent.program,), ())
    members = (replace(member, draft=draft),)
    leased = replace(leased, cohort=replace(cohort_of_one, members=members))
    twice = [GeneratedChildren.of(leased, [Offspring(Program(f"x = {n}.0\n"))]) for n in (1, 2)]
    enter_children(ctx, run, twice)
    [(step, trials, _)] = ctx.executor.messages  # type: ignore[attr-defined]
    assert (step, len(trials)) == ("evaluate", 1)
    steps.evaluate(ctx, *trials)
    assert settled(ctx, run) == [0]


def test_turns_saved_at_once_are_booked_together(ctx: Context) -> None:
    model = Numbers(tokens=7)
    ctx = replace(ctx, model=lambda run: model)
    run, cohorts = planned(ctx, 2, "asked")
    at_once(steps.generate, with_process(ctx, share=Together(("save", run.id))), cohorts)
    with ctx.store.begin() as tx:
        conversations = [operator_replies(tx, cohort) for cohort in cohorts]
        spent = tx.runs.get(run.id).tokens
    assert [sorted(turns) for turns in conversations] == [[0, 1], [0, 1]]
    texts = sorted(
        reply.text for turns in conversations for turn in turns.values() for reply in turn.values()
    )
    assert texts == [f"x = {n}\n" for n in (1, 2, 3, 4)]
    assert spent == 4 * 7


class Hanging(RecordedMessages):
    """Records messages of trials only once `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def submit(
        self, step: Any, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        assert self.go_on.wait(120)
        super().submit(step, subjects, together=together)


def test_no_thread_waits_for_the_messages_of_a_shared_transaction(ctx: Context) -> None:
    run, cohorts = planned(ctx, 2)
    queue = Hanging()
    ctx = replace(ctx, executor=queue)
    ctx = with_process(ctx, share=Together(("enter", run.id)))
    with ThreadPoolExecutor(THREADS) as pool:
        entering = [pool.submit(steps.generate, ctx, cohort) for cohort in cohorts]
        done, enqueueing = wait(entering, timeout=60, return_when=FIRST_COMPLETED)
        queue.go_on.set()
    assert len(done) == len(enqueueing) == 1
    [(step, trials, _)] = queue.messages
    assert (step, len(trials)) == ("evaluate", 2)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_cohort_started_too_often_fails_its_run_and_no_other_of_the_group(
    ctx: Context, leads: bool
) -> None:
    ctx = replace(ctx, pace=Pace(attempts=1))
    worn, [first] = planned(ctx, 1, name="worn")
    sound, [second] = planned(ctx, 1, name="sound")
    with ctx.store.begin() as tx:
        tx.proposals.claim([first], 0.0, attempts=1)
    group, release = GroupCommit(), threading.Event()
    ctx = with_process(ctx, share=group.share)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(group.share, "lease proposals", [], lambda _: [release.wait(60)])
        until(lambda: "lease proposals" in group._waiting)
        for n, cohort in enumerate((first, second) if leads else (second, first), 1):
            pool.submit(steps.generate, ctx, cohort)
            until(lambda n=n: len(group._waiting["lease proposals"]) == n)
        release.set()
    with ctx.store.begin() as tx:
        assert tx.runs.get(worn.id).state is RunState.FAILED
        assert tx.runs.get(sound.id).state is RunState.RUNNING
        assert tx.proposals.backlog(sound.id).generating == 0
