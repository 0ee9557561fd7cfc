"""Problems whose last stage is a game: the jobs of its trials, and what their outcomes mean.

The stages before it, which take one program each, are the gate of the players; what they measure is
read as that of any problem is.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from app.adapters.problems.building import Jobs
from app.adapters.problems.evaluator_result import Reader
from app.domain.evaluation import Evaluation, Failure, FailureKind, Trial
from app.domain.games import DRAW, LOSS, WIN
from app.domain.problem import GameLimits, Job, Outcome
from app.domain.program import Program, ProgramId

LostGames: TypeAlias = Literal["draw", "void"]

MOVES, TERMINATION, POSITION = "moves", "termination", "position"
"""Artifacts of a game: its moves, separated by spaces; how it ended; the last position as text."""

SLACK_SECONDS = 30.0
"""Time of a game beside that of its players: the referee's own, and what waits for a processor."""

_SIDES = ("first", "second")
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class GameJobs:
    """Makes the jobs of a game's trials.

    Attributes:
      game: The stage that is a game; the others have one player.
      players: Programs of a trial of that stage.
    """

    jobs: Jobs
    game: str
    players: int
    limits: GameLimits

    def prepare(self, trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
        """Returns the job of one trial.

        The two games of a pair that differ in who begins have one seed, so a referee that draws
        an opening gives both the same.

        Raises:
          ValueError: The trial has not as many players as its stage, or there is no such stage.
        """
        first = trial.players[0]
        if trial.stage != self.game:
            return replace(self.jobs.prepare(trial, programs), game=self.limits)
        if len(trial.players) != self.players:
            raise ValueError(f"a game has {self.players} players, not {len(trial.players)}")
        alone = self.jobs.prepare(replace(trial, players=(first,), cases=("",)), programs)
        parts = [self.jobs.prepare(replace(trial, players=(p,)), programs) for p in trial.players]
        number = int(trial.cases[0] or 0)
        return replace(
            alone,
            programs=tuple(part.programs[0] for part in parts),
            game=self.limits,
            seed=(sum(part.seed for part in parts) + number // 2) % 2**32,
        )


@dataclass(frozen=True, slots=True)
class GameReader:
    """How the outcomes of games become evaluations.

    Attributes:
      alone: Reads the stages of one program.
      lost: What a game is that ended by the fault of no player.
    """

    alone: Reader
    game: str
    lost: LostGames

    def interpret(
        self, trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
    ) -> Evaluation:
        """Returns the points of each player, and who is to blame for a game cut short.

        The case of a score names opponent, seat and number of the game, so that the mean over all
        cases is the share of the points.
        """
        if trial.stage != self.game:
            return self.alone.interpret(trial, programs, outcome)
        try:
            played = _played(outcome)
        except ValueError as error:
            played = _Played({}, Failure(FailureKind.INVALID_RESULT, str(error)))
        failure, points = played.failure, played.points
        if failure is not None and played.culprit is not None:
            failure = replace(failure, culprit=trial.players[played.culprit])
        if points is None and played.culprit is not None:
            points = (LOSS, WIN) if played.culprit == 0 else (WIN, LOSS)
        if points is None and self.lost == "draw":
            points = (DRAW, DRAW)
        texts = {name: played.texts[name] for name in sorted(played.texts)}
        if failure is not None:
            texts.setdefault(TERMINATION, failure.kind.value)
        read = self.alone.unscored(outcome, texts)
        return replace(read, scores=_scores(trial, points) if points else {}, failure=failure)


@dataclass(frozen=True, slots=True)
class _Played:
    """What an outcome says of a game.

    Attributes:
      texts: Moves, termination and position, where they are known.
      failure: Why the game was not played out; None where it was.
      culprit: Seat of the player to blame, from 0.
      points: Of both players, where the referee reported them.
    """

    texts: Mapping[str, str]
    failure: Failure | None = None
    culprit: int | None = None
    points: tuple[float, float] | None = None


def _played(outcome: Outcome) -> _Played:
    """Returns what an outcome says.

    Raises:
      ValueError: The referee's result is not that of a game.
    """
    reported: dict[str, object] = json.loads(outcome.result)["metrics"] if outcome.result else {}
    texts = {
        name: text
        for name in (TERMINATION, POSITION)
        if isinstance(text := reported.get(name), str)
    }
    if isinstance(moves := reported.get(MOVES), list):
        texts[MOVES] = " ".join(str(move) for move in moves)
    if outcome.failure is not None:
        return _Played(texts, outcome.failure, outcome.culprit)
    points = (_points(reported, "first"), _points(reported, "second"))
    if abs(sum(points) - 1.0) > _TOLERANCE:
        raise ValueError(f"the points of a game are {points[0]:g} and {points[1]:g}, not 1 in all")
    culprit = reported.get("culprit")
    if culprit is None:
        return _Played(texts, points=points)
    if culprit not in _SIDES:
        raise ValueError(f"the culprit of a game is {str(culprit)[:40]!r}, not first or second")
    detail = f"lost by {texts.get(TERMINATION, 'a breach of the rules')}"
    failure = Failure(FailureKind.INVALID_RESULT, detail)
    return _Played(texts, failure, _SIDES.index(culprit), points)


def _points(reported: Mapping[str, object], side: str) -> float:
    value = reported.get(side)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not LOSS <= value <= WIN:  # type: ignore[arg-type, operator]
        raise ValueError(f"the game reports {value!r:.40} as the points of `{side}`, not 0 to 1")
    return float(value)  # type: ignore[arg-type]


def _scores(trial: Trial, points: tuple[float, float]) -> dict[ProgramId, dict[str, float]]:
    scores: dict[ProgramId, dict[str, float]] = {player: {} for player in trial.players}
    for seat, player in enumerate(trial.players):
        case = f"{trial.players[1 - seat][:12]} {_SIDES[seat]} {trial.cases[0]}"
        scores[player][case] = points[seat]
    return scores
