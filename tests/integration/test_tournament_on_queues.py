"""A tournament on real queues, whose worker is killed while games are in progress."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from celery import Celery

from app.adapters.problems import load
from app.adapters.queue.celery import CeleryExecutor
from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.sql import SqlStore
from app.celery import configuration
from app.domain.events import Closed, Entered, EventKind, Played, Scored
from app.domain.operators.mutate import MUTATE
from app.domain.operators.seed import SEED
from app.domain.problem import Problem
from app.domain.run import RunState
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import Executor, Step
from app.reports.ratings import rated, read_ratings
from tests.engine.conftest import new_run, no_model, table
from tests.engine.toy import ToySandbox
from tests.integration.worker_double import until

ROOT = Path(__file__).resolve().parents[2]
ENTRANTS, GENERATIONS = 3, 2
PAUSE = """import time


def think():
    time.sleep(0.01)


"""
"""Begins the programs: their games take long enough to be seen in progress."""
IN_PROGRESS = """
    SELECT count(*) FILTER (WHERE evaluation IS NOT NULL) >= 2
        AND count(*) FILTER (WHERE evaluation IS NULL AND leased_until > now()) >= 1
    FROM trials WHERE stage = 'match' AND cohort <> (SELECT min(id) FROM cohorts)
"""
OVERDUE = "UPDATE trials SET leased_until = now(), visible_at = now() WHERE evaluation IS NULL"


class _Split:
    """An executor that sends trials to the queue, and keeps the other steps in this process."""

    def __init__(self, queue: Executor) -> None:
        self.queue, self.here = queue, InlineExecutor()

    def submit(self, step: Step, subjects: Sequence[int], *, together: int = 1) -> None:
        chosen = self.queue if step == "evaluate" else self.here
        chosen.submit(step, subjects, together=together)


@pytest.fixture
def executor(valkey: str, broker: redis.Redis) -> Iterator[_Split]:
    application = Celery("test", set_as_current=False)
    application.conf.update(configuration({"EVOQ_REDIS_URL": valkey}))
    yield _Split(CeleryExecutor(application))
    application.close()


@pytest.fixture
def worker(tmp_path: Path, valkey: str, database: str) -> Iterator[Any]:
    running: list[subprocess.Popen[bytes]] = []
    variables = {
        "PYTHONPATH": str(ROOT),
        "EVOQ_REDIS_URL": valkey,
        "EVOQ_DATABASE_URL": database,
        "EVOQ_SANDBOX__BACKEND": "process",
        "EVOQ_EVALUATE_CONCURRENCY": "2",
    }

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / f"worker{len(running)}.log").open("wb") as log:
            command = (sys.executable, "-m", "celery", "-A", "app", "worker", "-Q", "cpu")
            environment = {**os.environ, **variables}
            running.append(
                subprocess.Popen(
                    command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT
                )
            )
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def slow_connect_four(folder: Path) -> Problem:
    """Returns the example with seeds that take their time."""
    source = ROOT / "examples" / "connect_four"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for seed in (folder / "seeds").glob("*.py"):
        text = seed.read_text().replace(":\n", ":\n    think()\n", 1)
        seed.write_text(PAUSE + text)
    return load([folder], strict=True)


def test_a_killed_worker_changes_no_result_of_a_tournament(
    store: SqlStore, database: str, executor: _Split, worker: Any, tmp_path: Path
) -> None:
    game = slow_connect_four(tmp_path / "connect_four")
    ctx = Context(
        store=store,
        model=no_model,
        sandbox=ToySandbox(),
        executor=executor,
        problem=lambda digest: game,
        operators={one.name: one for one in (SEED, MUTATE)},
        share=GroupCommit().share,
    )
    new = new_run(game, islands=1, budget=ENTRANTS * GENERATIONS, in_flight=16)
    settings = {**new.settings, "strategy": {"entrants": ENTRANTS}}
    new = replace(new, strategy="tournament", settings=settings, operators={"mutate": 1.0}, axes=())
    run = lifecycle.start(ctx, game, new).id

    def tick() -> RunState:
        executor.here.drain(table(ctx), lambda: False)
        steps.produce(ctx, run)
        steps.reap(ctx, run)
        with store.begin() as tx:
            return tx.runs.get(run).state

    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as connection:
        victim = worker()

        def killed() -> bool:
            assert tick() is RunState.RUNNING, "the games ended before the worker was killed"
            victim.send_signal(signal.SIGSTOP)
            [(begun,)] = connection.execute(IN_PROGRESS).fetchall()
            victim.send_signal(signal.SIGKILL if begun else signal.SIGCONT)
            return bool(begun)

        until(killed, what="games in progress")
        victim.wait()
        connection.execute(OVERDUE)  # as when the lease has run out
        worker()
        until(lambda: tick() is not RunState.RUNNING, what="the end of the run")
        [(attempts,)] = connection.execute("SELECT max(attempts) FROM trials").fetchall()

    with store.begin() as tx:
        events = list(tx.events.read(run, limit=5000))
        state, ratings = tx.runs.get(run).state, read_ratings(tx, run)
    assert state is RunState.FINISHED
    assert attempts >= 2, "no game was played again"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    facts = [event.fact for event in events]
    games = [fact for fact in facts if isinstance(fact, Played)]
    closed = [fact for fact in facts if isinstance(fact, Closed)]
    assert_settled_once(games, [fact for fact in facts if isinstance(fact, Scored)])
    assert ratings == rated(games)
    assert [fact.kind for fact in closed] == [EventKind.CLOSED] * (1 + GENERATIONS)
    for before, after in pairwise(closed):
        entered = [f for f in facts if isinstance(f, Entered) and f.cohort == after.cohort]
        assert {parent for one in entered for parent in one.parents} <= set(before.podium)
    assert len({game.cohort for game in games}) > 1, "no generation had an entrant"


def assert_settled_once(games: Sequence[Played], scored: Sequence[Scored]) -> None:
    """Every pair of a generation has played its two games once, and they are what was scored."""
    for generation in scored:
        mine = [game for game in games if game.cohort == generation.cohort]
        seatings = Counter((game.first, game.second) for game in mine)
        players = {player for pair in seatings for player in pair}
        assert set(seatings.values()) <= {1}
        assert len(seatings) == len(players) * (len(players) - 1)
        points = Counter[str]()
        for game in mine:
            assert game.score is not None
            points[game.first] += game.score  # type: ignore[assignment]
            points[game.second] += 1.0 - game.score  # type: ignore[assignment]
        assert dict(points) == dict(generation.points)
