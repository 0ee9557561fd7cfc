"""The example Connect Four: its players, and a generation without a model on a real ledger."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.problems import load
from app.adapters.queue.inline import InlineExecutor
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.adapters.store.sql import SqlStore
from app.domain.evaluation import FailureKind
from app.domain.events import Closed, EventKind, Played
from app.domain.operators.mutate import MUTATE
from app.domain.operators.seed import SEED
from app.domain.program import Program
from app.domain.run import RunState
from app.engine.context import Context
from tests.engine.conftest import new_run, no_model, run_to_the_end
from tests.integration.game_examples import unhurried

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "connect_four"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))
    yield sandbox
    sandbox.close()


def test_a_generation_of_connect_four_needs_no_model(
    store: SqlStore, sandbox: ProcessSandbox
) -> None:
    game = unhurried(load([EXAMPLE], strict=True))
    ctx = Context(
        store=store,
        model=no_model,
        sandbox=sandbox,
        executor=InlineExecutor(),
        problem=lambda digest: game,
        operators={one.name: one for one in (SEED, MUTATE)},
    )
    new = new_run(game, islands=1, budget=2, in_flight=8)
    settings = {**new.settings, "strategy": {"entrants": 2}}
    new = replace(new, strategy="tournament", settings=settings, operators={"mutate": 1.0}, axes=())

    run = run_to_the_end(ctx, game, new)

    with store.begin() as tx:
        assert tx.runs.get(run).state is RunState.FINISHED
        events = [event.fact for event in tx.events.read(run)]
    games = [fact for fact in events if isinstance(fact, Played)]
    closed = [fact for fact in events if isinstance(fact, Closed)]
    assert [fact.kind for fact in closed] == [EventKind.CLOSED] * 2
    assert all(fact.moves and fact.termination for fact in games)
    assert {fact.failure for fact in games} == {None}


def test_an_illegal_move_is_blamed_and_no_entrant_makes_one(sandbox: ProcessSandbox) -> None:
    game = unhurried(load([EXAMPLE]))
    wrong = Program("def move(board, seconds):\n    return 7\n")
    [smoke] = game.trials_of(wrong.id, "smoke")
    trial = game.trials_of(wrong.id, "match")[0]
    programs = {wrong.id: wrong, game.seeds[0].id: game.seeds[0]}

    refused = game.interpret(smoke, programs, sandbox.run(game.prepare(smoke, programs)))
    lost = game.interpret(trial, programs, sandbox.run(game.prepare(trial, programs)))

    assert refused.failure is not None
    assert "illegal move" in refused.failure.detail
    assert lost.failure is not None
    assert (lost.failure.kind, lost.failure.culprit) == (FailureKind.INVALID_RESULT, wrong.id)
    assert lost.artifacts["termination"] == "illegal_move"
