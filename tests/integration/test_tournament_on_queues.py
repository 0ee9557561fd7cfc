"""Tournaments on real queues, whose worker is killed while games are in progress.

Of each game two at once: one with a simulated model, as strategist and as builder, and one without.
"""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

from app.adapters.problems import load
from app.cli.replay import recorded
from app.dashboard.frames import encode
from app.dashboard.tail import Tail
from app.domain.events import Closed, Directed, Entered, Event, EventKind, Played, Scored
from app.domain.operators.directed import DIRECTED
from app.domain.operators.mutate import MUTATE
from app.domain.operators.seed import SEED
from app.domain.problem import Problem
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.protocols import Store
from app.ports.runs import NewRun
from app.reports.ratings import rated, read_ratings
from tests.engine.conftest import ctx, new_run  # noqa: F401  ctx is a fixture
from tests.integration.game_examples import copied, copied_chess
from tests.integration.killed_workers import queued_runs
from tests.integration.mock_llm import Mock, mock_llm

pytestmark = pytest.mark.timing

ENTRANTS = 2
GENERATIONS = {"connect_four": 2}
if os.environ.get("TOURNAMENTS") == "whole":
    GENERATIONS["chess"] = 1
"""After that of the seeds.  What follows from a generation that was disturbed, Connect Four shows:
games of chess, which `make tournaments` plays too, take more processor time."""
MOST_PLIES = 16
"""Of a game of chess here, so that it takes little processor time."""
OPENING_PLIES = 18
"""Of a game of Connect Four, of at most 42: they are drawn at once."""
PAUSE = """import time


def think():
    time.sleep(0.04)


"""
"""Begins the programs: their games take long enough to be seen in progress."""
IN_PROGRESS = """
    SELECT count(*) FILTER (WHERE done >= 1 AND waiting >= 1) >= {tournaments}
        AND sum(leased) >= 1
    FROM (
        SELECT count(*) FILTER (WHERE evaluation IS NOT NULL) AS done,
            count(*) FILTER (WHERE evaluation IS NULL) AS waiting,
            count(*) FILTER (WHERE evaluation IS NULL AND leased_until > now()) AS leased
        FROM trials
        WHERE stage = 'match' AND cohort NOT IN (SELECT min(id) FROM cohorts GROUP BY run)
        GROUP BY run
    ) AS games
"""
"""So many tournaments have played some of the games of a generation after that of the seeds."""


@pytest.fixture(params=list(GENERATIONS))
def name(request: pytest.FixtureRequest) -> str:
    """The name of an example."""
    return str(request.param)


@pytest.fixture
def game(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Problem:
    """Returns an example whose seeds take their time, whose house does not search, and whose games
    are short."""
    folder = tmp_path / "game"
    if name == "chess":
        copied_chess(request.getfixturevalue("chess_package"), folder)
        change(folder / "rules.py", "MOST_PLIES = 120", f"MOST_PLIES = {MOST_PLIES}")
        change(folder / "evaluator.py", "house.search_player(2, seed=2)", "house.random_player(2)")
    else:
        copied("connect_four", folder)
        change(folder / "evaluator.py", ", house.search_player(3))", ",)")
        change(folder / "evaluator.py", "OPENING_PLIES = 4", f"OPENING_PLIES = {OPENING_PLIES}")
    for seed in (folder / "seeds").glob("*.py"):
        text = seed.read_text().replace(":\n", ":\n    think()\n", 1)
        seed.write_text(PAUSE + text)
    return load([folder], strict=True)


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.fixture
def model() -> Iterator[Mock]:
    with mock_llm("--latency", "0.01") as running:
        yield running


def new_tournament(game: Problem, generations: int, operator: str, **llm: Any) -> NewRun:
    new = new_run(game, islands=1, budget=ENTRANTS * generations, in_flight=16)
    settings = {**new.settings, "strategy": {"entrants": ENTRANTS}}
    settings["llm"] = {**settings["llm"], **llm}
    return replace(
        new,
        name=f"by-{operator}",
        strategy="tournament",
        settings=settings,
        operators={operator: 1.0},
        axes=(),
    )


@contextmanager
def streaming(store: Store, run: int) -> Iterator[list[str]]:
    """Yields the frames that a viewer is sent during the block, and up to a second after it."""
    frames: list[str] = []
    over = threading.Event()

    async def view() -> None:
        async def read() -> None:
            async for frame in Tail(store, run).frames(0):
                frames.append(frame)

        reading = asyncio.create_task(read())
        await asyncio.to_thread(over.wait)
        await asyncio.sleep(1.0)
        reading.cancel()

    viewer = threading.Thread(target=asyncio.run, args=(view(),))
    viewer.start()
    try:
        yield frames
    finally:
        over.set()
        viewer.join()


def test_a_killed_worker_changes_no_result_of_a_tournament(
    ctx: Context,  # noqa: F811
    tmp_path: Path,
    valkey: str,
    broker: redis.Redis,
    database: str,
    name: str,
    game: Problem,
    model: Mock,
) -> None:
    operators = {one.name: one for one in (SEED, MUTATE, DIRECTED)}
    ctx = replace(ctx, problem=lambda digest: game, operators=operators)
    asked = {"model": "mock", "base_url": model.base_url, "max_tokens": 800}
    roles = {"strategist": {"temperature": 1.0}}
    generations = GENERATIONS[name]
    tournaments = [
        new_tournament(game, generations, MUTATE.name),
        new_tournament(game, generations, DIRECTED.name, **asked, roles=roles),
    ]

    with queued_runs(ctx, tmp_path, valkey, database) as queued, ExitStack() as viewers:
        runs = [lifecycle.start(queued.ctx, game, new) for new in tournaments]
        streamed = [viewers.enter_context(streaming(ctx.store, run.id)) for run in runs]
        # Both may never be between the games of their only generation at once.
        disturbed = 1 if generations == 1 else 2
        attempts = queued.end(runs, IN_PROGRESS.format(tournaments=disturbed))

    assert attempts >= 2, "no game was played again"
    for run, frames in zip(runs, streamed, strict=True):
        with ctx.store.begin() as tx:
            events = list(tx.events.read(run.id, limit=5000))
            ratings = read_ratings(tx, run.id)
        facts = [event.fact for event in events]
        games = [fact for fact in facts if isinstance(fact, Played)]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert_settled_once(games, [fact for fact in facts if isinstance(fact, Scored)])
        assert ratings == rated(games)
        assert_each_generation_is_founded_by_the_best_two_of_the_last(facts, generations)
        assert len({game.cohort for game in games}) > 1, "no generation had an entrant"
        directions = [(fact.proposal, fact.by) for fact in facts if isinstance(fact, Directed)]
        assert sorted(directions) == [
            (proposal, "mock")
            for proposal in range(ENTRANTS * generations)
            if DIRECTED.name in run.operators
        ]
        assert_replayed_as_streamed(ctx.store, run.id, events, frames, generations)


def assert_each_generation_is_founded_by_the_best_two_of_the_last(
    facts: Sequence[Any], generations: int
) -> None:
    closed = [fact for fact in facts if isinstance(fact, Closed)]
    scored = {fact.cohort: fact.points for fact in facts if isinstance(fact, Scored)}
    assert len(closed) == 1 + generations
    for before, after in pairwise(closed):
        points = scored[before.cohort]
        assert len(before.podium) == 2
        assert min(points[program] for program in before.podium) >= max(
            [one for program, one in points.items() if program not in before.podium], default=0.0
        )
        entered = [f for f in facts if isinstance(f, Entered) and f.cohort == after.cohort]
        assert {parent for one in entered for parent in one.parents} <= set(before.podium)


def assert_replayed_as_streamed(
    store: Store, run: int, events: Sequence[Event], streamed: Sequence[str], generations: int
) -> None:
    """A replay, whole or by generation, has the bytes that a viewer was sent."""
    assert [encode(run, event) for event in recorded(store, run)] == streamed
    each_alone = [
        [encode(run, event) for event in recorded(store, run, number)]
        for number in range(1 + generations)
    ]
    ends = [event.seq for event in events if event.kind is EventKind.CLOSED]
    assert [frame for each in each_alone for frame in each] == streamed[: ends[-1]]
    assert [len(each) for each in each_alone] == [
        end - start for start, end in pairwise([0, *ends])
    ]


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
