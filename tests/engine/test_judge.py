"""Models that judge what was measured: one more stage, asked where models are asked."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.sql import SqlStore
from app.domain.operator import Completion, Prompt, Role
from app.domain.run import RunState
from app.domain.search.budget import Budget
from app.domain.search.cohort import State
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, Misconfigured, Stop, Unavailable
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.toy import ASKED, NUDGE, problem


class Bench:
    """Judges by a number, writes numbers, or is down."""

    name = "bench"

    def __init__(self, worth: object = 0.5, fault: Unavailable | None = None) -> None:
        self.worth, self.fault = worth, fault
        self.asked: list[Prompt] = []

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        if self.fault is not None and prompts[0].role is Role.JUDGE:
            raise self.fault
        self.asked += prompts
        return [Completion(self._answer(one), "bench", role=one.role) for one in prompts]

    def _answer(self, prompt: Prompt) -> str:
        if prompt.role is Role.JUDGE:
            return json.dumps({"clear": self.worth, "why": f"as {prompt.model} sees it"})
        return f"x = {prompt.sample / 7:.6f}\n"


def order(**more: Any) -> Any:
    run = new_run(problem(), budget=12)
    llm = {
        **run.settings["llm"],
        **{"feedback": True, "feedback_weight": 0.5, "repair_turns": 0},
        "roles": {"judge": {"models": [{"name": "strict"}, {"name": "mild", "weight": 3.0}]}},
    }
    return replace(run, settings={**run.settings, "llm": llm, **more})


def test_every_measured_program_is_judged_and_its_fitness_follows(ctx: Context):
    bench = Bench()
    ctx = replace(ctx, model=lambda run: bench)

    run = run_to_the_end(ctx, problem(), order())

    with ctx.store.begin() as tx:
        settled = tx.history.settled(run)
        measured = {
            one.program: tx.history.evaluations(run, one.program)
            for one in settled
            if one.program and one.state is State.ADMITTED
        }
        assert tx.runs.get(run).state is RunState.FINISHED
    assert measured
    for one in settled:
        if one.state is State.ADMITTED and one.program:
            own, judged = measured[one.program][:2]
            near = own.scores[one.program]["near"]
            assert judged.scores[one.program] == {"llm_clear": 0.25, "llm_average": 0.25}
            assert one.fitness == pytest.approx((near + 0.25 + 0.25) / 3)
            assert judged.artifacts["why"] == "as strict sees it"
    asked = [one for one in bench.asked if one.role is Role.JUDGE]
    assert [one.model for one in asked[:2]] == ["strict", "mild"]
    failed = sum(1 for one in settled if one.state is State.FAILED)
    assert failed  # some of the toy's children crash, and nobody is asked about those
    assert len(asked) == 2 * sum(1 for one in settled if one.state is State.ADMITTED)


def test_a_run_without_judges_asks_nobody_and_has_no_such_trial(ctx: Context, store: SqlStore):
    run = run_to_the_end(ctx, problem(), new_run(problem(), budget=12))

    with ctx.store.begin() as tx:
        best = tx.history.best(run)
        assert best is not None
        assert best.program is not None
        assert len(tx.history.evaluations(run, best.program)) == 1


def test_judges_that_are_down_keep_the_child_waiting_and_nothing_is_measured_twice(ctx: Context):
    bench = Bench(fault=Unavailable("no judge today"))
    ctx = replace(ctx, model=lambda run: bench)
    run = lifecycle.start(ctx, problem(), order())
    queue = ctx.executor
    assert isinstance(queue, InlineExecutor)
    with pytest.raises(Unavailable, match="no judge"):
        queue.drain(table(ctx), lambda: False)
    with ctx.store.begin() as tx:
        assert "no judge today" in tx.runs.get(run.id).reason
        assert not tx.history.settled(run.id)
    tested = ctx.sandbox.runs  # type: ignore[attr-defined]

    bench.fault = None
    later = replace(ctx, pace=replace(ctx.pace, redeliver_seconds=0.0))
    with later.store.begin() as tx:
        tx.leases.forget_attempts(run.id)
    steps.reap(later, run.id)
    queue.drain(table(ctx), lambda: False)

    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).state is RunState.FINISHED
        seeds = [one for one in tx.history.settled(run.id) if one.seed]
    assert [one.state for one in seeds] == [State.ADMITTED]
    assert ctx.sandbox.runs > tested  # type: ignore[attr-defined]


def test_a_judge_that_needs_a_person_pauses_the_run(ctx: Context):
    bench = Bench(fault=Misconfigured("401: set JUDGE_KEY"))
    ctx = replace(ctx, model=lambda run: bench)

    run = run_to_the_end(ctx, problem(), order())

    with ctx.store.begin() as tx:
        assert tx.runs.get(run).state is RunState.PAUSED
        assert "JUDGE_KEY" in tx.runs.get(run).reason


def test_an_opinion_that_was_paid_for_is_not_asked_again(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
):
    bench = Bench()
    ctx = replace(ctx, model=lambda run: bench)
    lifecycle.start(ctx, problem(), order())
    queue = ctx.executor
    assert isinstance(queue, InlineExecutor)
    messages: list[int] = []
    own = {**table(ctx), "judge": messages.append}
    queue.drain(own, lambda: bool(messages))

    def dies(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("app.engine.judge.record_results", dies)
    with pytest.raises(MemoryError):
        steps.judge(ctx, messages[0])
    monkeypatch.undo()
    with ctx.store.begin() as tx:
        tx.leases.release([], [messages[0]], 0.0)
    steps.judge(ctx, messages[0])

    assert len(bench.asked) == 2


def test_tokens_of_judges_are_set_aside(ctx: Context):
    bench = Bench()
    ctx = replace(ctx, model=lambda run: bench)
    capped = replace(order(), operators={ASKED.name: 1.0}, budget=Budget(12, tokens=1))

    run = run_to_the_end(ctx, problem(), capped)

    with ctx.store.begin() as tx:
        found = tx.runs.get(run)
    assert found.state is RunState.FINISHED
    assert "tokens" in found.reason
    assert NUDGE.name not in found.operators
