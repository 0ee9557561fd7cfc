"""The example chess: its seeds play legally, its referee judges, and its positions are drawn."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.adapters.problems import load
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.evaluation import Evaluation, FailureKind, Trial, fitness
from app.domain.problem import Problem
from app.domain.program import Program
from app.reports.boards import picture, position_after
from tests.integration.game_examples import copied_chess, unhurried

OPENING_PLIES = 4
"""Random moves before the players' own."""


@pytest.fixture(scope="module")
def chess(chess_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Problem:
    folder = copied_chess(chess_package, tmp_path_factory.mktemp("example") / "chess")
    return unhurried(load([folder]))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))
    yield sandbox
    sandbox.close()


def played(sandbox: ProcessSandbox, problem: Problem, stage: str, *players: Program) -> Evaluation:
    programs = {one.id: one for one in players}
    trial = Trial(stage, tuple(one.id for one in players), ("0",) if len(players) > 1 else ("",))
    outcome = sandbox.run(problem.prepare(trial, programs))
    return problem.interpret(trial, programs, outcome)


def shown(sandbox: ProcessSandbox, problem: Problem, *cases: str) -> dict[str, Any]:
    job = replace(problem.first_job(), function="turn", cases=cases)
    outcome = sandbox.run(job)
    assert outcome.result is not None, outcome.failure
    return dict(json.loads(outcome.result)["metrics"])


def test_the_seeds_of_chess_play_the_house_and_each_other(
    sandbox: ProcessSandbox, chess: Problem
) -> None:
    smokes = [played(sandbox, chess, "smoke", seed) for seed in chess.seeds]
    game = played(sandbox, chess, "match", *chess.seeds)

    assert [smoke.failure for smoke in smokes] == [None, None]
    assert game.failure is None
    assert sum(fitness(seed.id, [game]) or 0.0 for seed in chess.seeds) == 1.0
    rows = [line[2:] for line in game.artifacts["position"].splitlines()[:8]]
    assert position_after(game.artifacts["moves"].split()) == "\n".join(rows)
    assert picture(game.artifacts["position"]).count("<rect") == 64


@pytest.mark.parametrize("answer", ["'e2e5'", "'e7e5'", "0", "None"])
def test_a_player_of_chess_that_moves_illegally_is_blamed(
    sandbox: ProcessSandbox, chess: Problem, answer: str
) -> None:
    wrong = Program(f"def move(fen, legal, seconds):\n    return {answer}\n")
    game = played(sandbox, chess, "match", wrong, chess.seeds[0])

    assert game.failure is not None
    assert (game.failure.kind, game.failure.culprit) == (FailureKind.INVALID_RESULT, wrong.id)
    assert game.artifacts["termination"] == "illegal_move"
    assert game.artifacts["moves"].split()[OPENING_PLIES].startswith("?")


def test_a_person_may_play_chess_against_a_program(sandbox: ProcessSandbox, chess: Problem) -> None:
    first = shown(sandbox, chess, "show")
    answered = shown(sandbox, chess, "move", "e2e4")
    mated = shown(sandbox, chess, "show", "f2f3", "e7e5", "g2g4", "d8h4")

    assert len(first["legal"]) == 20
    assert not first["over"]
    assert answered["move"]
    assert mated["over"] == "checkmate: black wins"
    assert mated["legal"] == []
