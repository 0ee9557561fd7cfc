"""A run whose own step raises is paused with the reason, and delays no other run."""

import logging
from dataclasses import replace

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.domain.problem import Job, Outcome
from app.domain.run import Run, RunState
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop
from tests.engine.conftest import new_run
from tests.engine.toy import ToySandbox, problem
from workers import tasks


def started(ctx: Context, name: str) -> Run:
    toy = problem()
    return lifecycle.start(ctx, toy, replace(new_run(toy, budget=12, in_flight=3), name=name))


def work(ctx: Context, monkeypatch: pytest.MonkeyPatch, ticks: int = 3) -> None:
    """Runs the Celery tasks of all messages in this thread, and those of beat between them."""
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://localhost:1/0")  # Celery reads it for any task
    monkeypatch.setattr(tasks, "report_tick", lambda app, *, idle: None)
    monkeypatch.setattr(tasks, "context", lambda: ctx)
    table = {
        "produce": tasks.produce.run,
        "generate": tasks.generate.run,
        "evaluate": tasks.evaluate.run,
        "judge": tasks.judge.run,
    }
    assert isinstance(ctx.executor, InlineExecutor)
    for _ in range(ticks):
        ctx.executor.drain(table, lambda: False)
        tasks.produce.run()
        tasks.reap.run()


def ended(ctx: Context, run: Run) -> Run:
    with ctx.store.begin() as tx:
        return tx.runs.get(run.id)


def test_a_run_whose_planning_raises_is_paused_and_the_next_one_is_planned(
    ctx: Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned, healthy = started(ctx, "poisoned"), started(ctx, "healthy")
    real = Context.strategy

    def strategy(self: Context, run: Run) -> object:
        if run.id == poisoned.id:
            raise ZeroDivisionError("a recipe divides by zero")
        return real(self, run)

    monkeypatch.setattr(Context, "strategy", strategy)
    with caplog.at_level(logging.ERROR):
        work(ctx, monkeypatch)

    first, second = ended(ctx, poisoned), ended(ctx, healthy)
    assert first.state is RunState.PAUSED
    assert "raised ZeroDivisionError: a recipe divides by zero" in first.reason
    assert (second.state, second.proposals) == (RunState.FINISHED, 12)
    assert "Traceback" in caplog.text
    assert "its run is paused" in caplog.text


class Faulty(ToySandbox):
    """Raises what no sandbox should, for programs of one run's kind, until it is mended."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = True

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if self.broken:
            raise KeyError("a defect of this package")
        return super().run(job)


def test_a_run_whose_trial_raises_is_paused_and_goes_on_when_it_is_resumed(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = Faulty()
    ctx = replace(ctx, sandbox=sandbox)
    run = started(ctx, "poisoned")
    work(ctx, monkeypatch)
    paused = ended(ctx, run)
    assert paused.state is RunState.PAUSED
    assert paused.reason.startswith("the step evaluate raised KeyError: 'a defect of this package'")

    sandbox.broken = False
    lifecycle.resume(ctx, run.id)
    work(ctx, monkeypatch, ticks=8)

    assert ended(ctx, run).state is RunState.FINISHED


def test_a_run_whose_child_cannot_be_made_is_paused(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(ctx, "poisoned")
    seed = {"seed": ctx.operators["seed"]}
    work(replace(ctx, operators=seed), monkeypatch)  # the worker lacks the run's operator
    paused = ended(ctx, run)
    assert paused.state is RunState.PAUSED
    assert "raised KeyError" in paused.reason
