"""Calls of which some prompts were answered and others not: what came is kept, the rest asked."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from random import Random

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.sql import SqlStore
from app.domain.events import SETTLING
from app.domain.operator import Brief, Completion, Conversation, Offspring, Operator, Prompt, Role
from app.domain.program import Program
from app.domain.run import RunState
from app.domain.search.budget import Budget, unanswered_price
from app.engine import lifecycle, steps
from app.engine.budget import price_ceiling
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Stop, Unavailable
from tests.engine.conftest import new_run, table, with_process
from tests.engine.executors import (
    RecordedMessages,
    UnreliableQueue,
    operator_replies,
    planned,
    served,
    settled,
)
from tests.engine.test_budgets import asking
from tests.engine.test_judge import order
from tests.engine.toy import problem

TOKENS = 7
TEXTS = ("whole", "half", "sign")


def _three(brief: Brief) -> Conversation:
    """Asks three things of each draft at once, and makes a program of all of them."""
    [draft] = brief.drafts
    replies = yield [Prompt("", text, draft.ordinal) for text in TEXTS]
    return [Offspring(Program(f"x = {''.join(reply.text for reply in reversed(replies))}\n"))]


class Failing:
    """Answers with numbers; the prompts that are down are left unanswered, at `unanswered`."""

    name = "failing"

    def __init__(self, *down: str, unanswered: int = 0) -> None:
        self.asked: list[str] = []
        self.down = set(down)
        self.unanswered = unanswered

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.asked += [one.user for one in prompts]
        said = {"whole": "5", "half": "0.", "sign": "-"}
        answered = {
            place: Completion(said.get(one.user, "{}"), self.name, completion_tokens=TOKENS)
            for place, one in enumerate(prompts)
            if one.user not in self.down
        }
        if len(answered) < len(prompts):
            raise Unavailable("half of it is down", unanswered=self.unanswered, answered=answered)
        return list(answered.values())


def asks_three(ctx: Context, model: Failing) -> Context:
    operators = {**ctx.operators, "asked": Operator("asked", _three, completions=3)}
    return replace(ctx, model=lambda run: model, operators=operators, pace=Pace(retry_seconds=0.0))


def test_what_was_answered_is_kept_and_only_the_rest_is_asked_again(ctx: Context) -> None:
    model = Failing("half")
    ctx = replace(asks_three(ctx, model), executor=RecordedMessages())
    run, cohorts = planned(ctx, 1, "asked")
    with pytest.raises(Unavailable, match="half of it is down"):
        steps.generate(ctx, *cohorts)
    with ctx.store.begin() as tx:
        assert {place: one.text for place, one in operator_replies(tx, *cohorts)[0].items()} == {
            0: "5",
            2: "-",
        }
        assert tx.runs.get(run.id).tokens == 2 * TOKENS

    model.down.clear()
    steps.generate(ctx, *cohorts)

    assert model.asked == ["whole", "half", "sign", "half"]
    _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
    steps.evaluate(ctx, *trials)
    assert settled(ctx, run) == [0]
    with ctx.store.begin() as tx:
        assert Program("x = -0.5\n").id in {one.program for one in tx.history.settled(run.id)}
        assert tx.runs.get(run.id).tokens == 3 * TOKENS


def test_a_call_that_fails_again_and_again_pays_for_each_prompt_once(ctx: Context) -> None:
    model = Failing("half", "sign")
    ctx = replace(asks_three(ctx, model), executor=RecordedMessages())
    run, cohorts = planned(ctx, 1, "asked")
    for down in ({"half", "sign"}, {"half"}, {"half"}, set[str]()):
        model.down = down
        try:
            steps.generate(ctx, *cohorts)
        except Unavailable:
            continue

    assert model.asked == ["whole", "half", "sign", "half", "sign", "half", "half"]
    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).tokens == 3 * TOKENS


def test_what_was_asked_again_grows_from_the_parents_of_what_was_answered(ctx: Context) -> None:
    model = Failing("half")
    ctx = replace(asks_three(ctx, model), executor=RecordedMessages())
    _, cohorts = planned(ctx, 1, "asked")

    with pytest.raises(Unavailable):
        steps.generate(ctx, *cohorts)

    with ctx.store.begin() as tx:
        [(_, leased)] = tx.proposals.claim(cohorts, 0.0, attempts=100)
        [member] = leased.cohort.members
    assert member.draft is not None
    assert member.draft.parents


def test_what_was_answered_and_what_may_be_billed_are_booked_together(ctx: Context) -> None:
    model = Failing("half", unanswered=2)
    ctx = asks_three(ctx, model)
    run = lifecycle.start(ctx, problem(), asking(Budget(500, tokens=5000)))
    with pytest.raises(Unavailable):
        ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]

    with ctx.store.begin() as tx:
        found = tx.runs.get(run.id)
    lost = unanswered_price(price_ceiling(run), Prompt("", "half"), 2).tokens
    said = sum(len(text) for text in ("whole", "sign", "5", "-"))  # nobody counted: a token a byte
    assert found.tokens == lost + said


def test_of_several_judges_those_that_answered_are_not_asked_again(ctx: Context) -> None:
    class OneJudge(Failing):
        def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
            if prompts[0].role is not Role.JUDGE:
                return [Completion(f"x = {one.sample}\n", self.name) for one in prompts]
            self.asked += [one.model for one in prompts]
            opinions = [Completion('{"clear": 0.5}', self.name) for _ in prompts]
            answered = {
                place: one
                for place, one in enumerate(opinions)
                if prompts[place].model not in self.down
            }
            if len(answered) < len(prompts):
                raise Unavailable("a judge is down", answered=answered)
            return opinions

    model = OneJudge("mild")
    queue = InlineExecutor()
    pace = Pace(retry_seconds=0.0, redeliver_seconds=0.0)
    ctx = replace(ctx, executor=queue, model=lambda run: model, pace=pace)
    run = lifecycle.start(ctx, problem(), replace(order(), budget=Budget(1)))
    with pytest.raises(Unavailable, match="a judge is down"):
        queue.drain(table(ctx), lambda: False)
    assert model.asked == ["strict", "mild"]

    model.down.clear()
    steps.reap(ctx, run.id)
    queue.drain(table(ctx), lambda: bool(model.asked[2:]))

    assert model.asked[:3] == ["strict", "mild", "mild"]


BUDGET = 30
PROCESSES, THREADS = 2, 8


class Unsteady:
    """Takes longer than a lease, and fails at one prompt in five; counts what it answered."""

    name = "unsteady"

    def __init__(self) -> None:
        self.answered = 0
        self._rng = Random(1)
        self._lock = threading.Lock()

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        with self._lock:
            takes, down = self._rng.uniform(0.0, 0.1), [self._rng.random() < 0.2 for _ in prompts]
        time.sleep(takes)
        with self._lock:
            answered = {n: self._said(prompts[n]) for n, gone in enumerate(down) if not gone}
        if len(answered) < len(prompts):
            raise Unavailable("a part of it is down", answered=answered)
        return list(answered.values())

    def _said(self, prompt: Prompt) -> Completion:
        self.answered += 1
        text = {"whole": f"{prompt.sample % 7}", "half": f".{self.answered}", "sign": "-"}
        latency = float(self.answered)
        return Completion(
            text[prompt.user], self.name, completion_tokens=TOKENS, latency_seconds=latency
        )


def test_workers_whose_leases_run_out_while_calls_fail_book_every_answer_and_use_one(
    ctx: Context, database: str
) -> None:
    queue, model = UnreliableQueue(1), Unsteady()
    operators = {**ctx.operators, "asked": Operator("asked", _three, completions=3)}
    pace = Pace(0.03, 0.05, 0.02, attempts=10_000)
    ctx = replace(ctx, executor=queue, model=lambda run: model, operators=operators, pace=pace)
    new = new_run(problem(), budget=BUDGET, in_flight=16)
    run = lifecycle.start(ctx, problem(), replace(new, operators={"asked": 1.0}))
    with ExitStack() as stack:
        processes = []
        for _ in range(PROCESSES):
            store = SqlStore(database)
            stack.callback(store.close)
            processes.append(with_process(replace(ctx, store=store), share=GroupCommit().share))
        served(queue, ctx, run, processes * THREADS, seconds=240, borne=(Unavailable,))

    with ctx.store.begin() as tx:
        final, events = tx.runs.get(run.id), tx.events.read(run.id, limit=10_000)
        [account] = tx.completions.accounts(run.id)
    assert final.state is RunState.FINISHED
    assert sorted(e.data["proposal"] for e in events if e.kind in SETTLING) == list(range(BUDGET))
    assert account.completions == 3 * BUDGET
    assert model.answered > account.completions  # leases did run out
    assert final.tokens == model.answered * TOKENS
