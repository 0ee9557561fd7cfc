"""Patterns of agents over a repository: races, sets of scores, and attempts that learn."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import app.bootstrap.agents
from app.adapters.model.per_run import Models
from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.leases import LeaseRenewer
from app.adapters.store.sql import SqlStore
from app.bootstrap.agents import agents
from app.domain.operators.agent import AGENT
from app.domain.run import Run
from app.domain.search.cohort import CutReason, State
from app.engine import lifecycle, steps
from app.engine.context import Context
from tests.engine.conftest import new_run, table, with_process
from tests.engine.executors import RecordedMessages
from tests.engine.test_agent_operator import SEVERAL, NewSettings, run_here
from tests.engine.test_patterns import outcomes

HEAD = """
import os, pathlib, re, sys, time
place = pathlib.Path({place!r})
def turn():
    for n in range(99):
        try:
            os.close(os.open(place / str(n), os.O_CREAT | os.O_EXCL))
            return n
        except FileExistsError:
            pass
def move(x):
    pathlib.Path("a.py").write_text("x = %s  # %s\\n" % (x, os.getpid()))
task = pathlib.Path(os.environ["EVOQ_TASK"]).read_text()
n = turn()
(place / ("task-%s" % n)).write_text(task)
"""


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.bootstrap.agents, "run_isolated", run_here)


@pytest.fixture
def renewer(store: SqlStore) -> Iterator[LeaseRenewer]:
    made = LeaseRenewer(store, 0.3)
    yield made
    made.close()


def begun(
    ctx: Context, place: Path, script: str, recipe: str, proposals: int, **parameters: Any
) -> tuple[Context, Run]:
    """Returns a run of agents over a repository by a recipe, which has begun.

    In `script`, `n` counts agents from 0, `task` is the text of the task, and `move(x)` makes the
    child of that number.
    """
    settings = NewSettings(HEAD.format(place=str(place)) + script, proposals=proposals).settings()
    new = new_run(SEVERAL, budget=proposals, in_flight=8, islands=1)
    new = replace(
        new,
        strategy=recipe,
        operators={AGENT.name: 1.0},
        settings={**new.settings, "agent": settings["agent"], "strategy": parameters},
    )
    ctx = replace(
        ctx,
        model=Models(ctx.store, agent=agents(lambda run: SEVERAL, ctx.sandbox, ctx.store)),
        problem=lambda digest: SEVERAL,
        operators={**ctx.operators, AGENT.name: AGENT},
    )
    return ctx, lifecycle.start(ctx, SEVERAL, new)


def test_agents_that_lose_a_race_are_ended_in_their_middle(
    ctx: Context, tmp_path: Path, renewer: LeaseRenewer
) -> None:
    script = """
if n < 2:
    time.sleep(300)
while not (place / "1").exists():
    time.sleep(0.01)
move(1.0)
"""
    ctx = with_process(replace(ctx, executor=RecordedMessages()), keep_lease=renewer.keep)
    ctx, run = begun(ctx, tmp_path, script, "speculate", 3, racers=3)
    messages = ctx.executor
    assert isinstance(messages, RecordedMessages)
    for _ in range(3):
        step, subjects, _ = messages.take()
        table(ctx)[step](*subjects)
    step, proposals, _ = messages.take()
    assert (step, len(proposals)) == ("generate", 3)

    with ThreadPoolExecutor(3) as pool:
        made = [pool.submit(steps.generate, ctx, each) for each in proposals[:2]]
        while not (tmp_path / "task-1").exists():
            assert not any(each.done() for each in made)
            time.sleep(0.02)
        steps.generate(ctx, proposals[2])
        while messages.messages:
            step, trials, _ = messages.take()
            if step == "evaluate":
                steps.evaluate(ctx, *trials)
        won = time.monotonic()
        for each in made:
            each.result(60)

    assert time.monotonic() - won < 30
    cut = CutReason.WITHDRAWN
    assert outcomes(ctx, run) == {0: cut, 1: cut, 2: State.ADMITTED}
    assert threading.active_count() < 20


def ended(ctx: Context) -> None:
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), lambda: False)


def test_best_of_n_agents_without_commit_is_a_set_of_scores(ctx: Context, tmp_path: Path) -> None:
    ctx, run = begun(ctx, tmp_path, "move([1.0, 3.0, 2.0][n])", "best_of_n", 3, n=3, commit=False)

    ended(ctx)

    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run.id) if not one.seed]
        best = tx.archive.island(run.id, 0).best(9)
    assert {one.cut for one in settled} == {CutReason.BELOW_THRESHOLD}
    assert len({one.fitness for one in settled}) == 3
    assert [elite.program for elite in best] == [SEVERAL.seeds[0].id]


def test_an_attempt_of_reflexion_reads_the_output_and_the_failure_of_the_last_one(
    ctx: Context, tmp_path: Path
) -> None:
    script = """
if n == 0:
    print("I found nothing to change.")
elif n == 1:
    move("crash")
elif n == 2:
    print("I tried a negative number.")
    move(-1.0)
else:
    move(1.0)
"""
    ctx, run = begun(ctx, tmp_path, script, "reflexion", 4, attempts=9)

    ended(ctx)

    assert outcomes(ctx, run)[3] is State.ADMITTED
    tasks = [(tmp_path / f"task-{n}").read_text() for n in range(4)]
    assert "I found nothing to change." not in tasks[0]
    assert "I found nothing to change." in tasks[1]
    assert "I found nothing to change." in tasks[2]
    assert "crash" in tasks[2].lower(), tasks[2]
    assert "I tried a negative number." in tasks[3]
    assert "worse: fitness" in tasks[3]
