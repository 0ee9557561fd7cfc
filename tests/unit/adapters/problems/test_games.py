"""Problems whose last stage is a game: jobs, points and blame."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.adapters.problems import load
from app.adapters.problems.games import SLACK_SECONDS
from app.domain.evaluation import Evaluation, Failure, FailureKind, Trial, fitness
from app.domain.problem import GameLimits, Outcome, Problem, ProblemError

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "connect_four"
ENDED = {"first": 1.0, "second": 0.0, "termination": "four_in_a_line", "moves": ["1", "2"]}


@pytest.fixture(scope="module")
def connect_four() -> Problem:
    return load([EXAMPLE])


@pytest.fixture
def trial(connect_four: Problem) -> Trial:
    first, second = (seed.id for seed in connect_four.seeds)
    return Trial("match", (first, second), ("1",))


def read(problem: Problem, trial: Trial, result: Any = None, **ending: Any) -> Evaluation:
    document = None if result is None else json.dumps({"metrics": result, "artifacts": {}}).encode()
    outcome = Outcome(document, ending.pop("failure", None), **ending)
    return problem.interpret(trial, {seed.id: seed for seed in problem.seeds}, outcome)


def points(evaluation: Evaluation, trial: Trial) -> list[float | None]:
    return [fitness(player, [evaluation]) for player in trial.players]


def test_a_game_has_a_job_with_both_programs_and_their_limits(
    connect_four: Problem, trial: Trial
) -> None:
    job = connect_four.prepare(trial, {seed.id: seed for seed in connect_four.seeds})
    assert job.game == GameLimits(1.0, 20.0, 128)
    assert [text for _, text in job.programs] == [s.source.encode() for s in connect_four.seeds]
    assert job.limits.wall_seconds >= 2 * 20.0
    assert connect_four.first_job().function == "smoke"
    assert connect_four.first_job().game == job.game


def test_the_limits_of_a_game_have_room_for_those_of_all_players(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "evaluator.py").write_text("")
    text = "seeds: {first: a.py}\nplayers: 2\nstages: [{name: match, memory_mib: 100}]\n"
    (tmp_path / "problem.yaml").write_text(text + "game: {game_seconds: 500, memory_mib: 300}\n")

    problem = load([tmp_path])
    [seed] = problem.seeds
    job = problem.prepare(Trial("match", (seed.id, seed.id), ("1",)), {seed.id: seed})

    assert job.limits.wall_seconds == 2 * 500 + SLACK_SECONDS
    assert job.limits.cpu_seconds == 2 * job.limits.wall_seconds
    assert job.limits.memory_mib == 100 + 2 * 300


def test_chess_requires_its_package_and_loads_without_it() -> None:
    chess = load([EXAMPLE.parent / "chess"], strict=True)
    assert chess.first_job().evaluator.files["requirements.txt"] == b"chess==1.11.2\n"
    assert (chess.players, chess.stages, chess.notices) == (2, ("smoke", "match"), ())
    assert chess.suggestions["search.strategy"] == "tournament"


def test_the_games_of_a_pair_that_differ_in_who_begins_have_one_seed(
    connect_four: Problem, trial: Trial
) -> None:
    programs = {seed.id: seed for seed in connect_four.seeds}
    one, other = trial.players
    games = [((one, other), "0"), ((other, one), "1"), ((one, other), "2"), ((one, one), "0")]
    first, swapped, next_game, other_pair = (
        connect_four.prepare(Trial("match", pair, (number,)), programs).seed
        for pair, number in games
    )
    assert first == swapped
    assert len({first, next_game, other_pair}) == 3


def test_the_points_of_a_game_are_scores_by_opponent(connect_four: Problem, trial: Trial) -> None:
    evaluation = read(connect_four, trial, ENDED)
    first, second = trial.players
    assert evaluation.scores == {
        first: {f"{second[:12]} first 1": 1.0},
        second: {f"{first[:12]} second 1": 0.0},
    }
    assert evaluation.artifacts == {"moves": "1 2", "termination": "four_in_a_line"}
    assert evaluation.failure is None


def test_a_player_that_fails_loses_and_is_blamed_alone(connect_four: Problem, trial: Trial) -> None:
    crash = Failure(FailureKind.RUNTIME, "it crashed")
    evaluation = read(connect_four, trial, {"moves": ["4"]}, failure=crash, culprit=1)
    assert points(evaluation, trial) == [1.0, 0.0]
    assert evaluation.failure is not None
    assert evaluation.failure.culprit == trial.players[1]
    assert evaluation.artifacts["moves"] == "4"


def test_the_referee_may_blame_a_player(connect_four: Problem, trial: Trial) -> None:
    illegal = {"first": 0, "second": 1, "termination": "illegal_move", "culprit": "first"}
    evaluation = read(connect_four, trial, illegal)
    assert points(evaluation, trial) == [0.0, 1.0]
    assert evaluation.failure is not None
    assert evaluation.failure.culprit == trial.players[0]


def test_a_game_that_nobody_lost_is_a_draw_or_void(
    connect_four: Problem, trial: Trial, tmp_path: Path
) -> None:
    overdue = Failure(FailureKind.TIMEOUT, "no result")
    assert points(read(connect_four, trial, failure=overdue), trial) == [0.5, 0.5]
    for file in (*EXAMPLE.glob("*.*"), *EXAMPLE.glob("seeds/*.*")):
        copy = tmp_path / file.relative_to(EXAMPLE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(file.read_text().replace("lost_games: draw", "lost_games: void"))
    void = load([tmp_path])
    evaluation = read(void, trial, failure=overdue)
    assert points(evaluation, trial) == [None, None]
    assert evaluation.failure is not None
    assert evaluation.failure.culprit is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 1.0, "second": 1.0},
        {"first": 2.0, "second": -1.0},
        {"first": True, "second": False},
        {"first": 1.0},
        {**ENDED, "culprit": "both"},
    ],
)
def test_a_result_that_is_none_of_a_game_blames_nobody(
    connect_four: Problem, trial: Trial, wrong: Any
) -> None:
    evaluation = read(connect_four, trial, wrong)
    assert evaluation.failure is not None
    assert evaluation.failure.kind is FailureKind.INVALID_RESULT
    assert evaluation.failure.culprit is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("players: 2\nmode: compatible\n", "would share one process in compatible mode"),
        ("game: {move_seconds: 1}\n", "`game` needs `players: 2`"),
        ("players: 3\n", "`players`"),
    ],
)
def test_a_description_of_a_game_that_cannot_be_played(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "evaluator.py").write_text("")
    base = "seeds: {first: a.py}\nstages: [{name: smoke}, {name: match}]\n"
    (tmp_path / "problem.yaml").write_text(base + text)
    with pytest.raises(ProblemError, match=message):
        load([tmp_path])
