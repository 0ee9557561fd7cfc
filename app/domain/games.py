"""Games between two programs: which pairs play, and ratings as folds over the games of a ledger.

Sources: Elo, "The Rating of Chessplayers, Past and Present" (1978), in rating periods, so that the
order of the games within one does not matter; Bradley & Terry, "Rank analysis of incomplete block
designs" (Biometrika 39, 1952), with the minorisation of Hunter, "MM algorithms for generalized
Bradley-Terry models" (Annals of Statistics 32, 2004).  Departures: a draw counts as half a win of
each, and every player has a few drawn games against an average one, so that ratings stay finite.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from app.domain.evaluation import Evaluation, Trial, fitness
from app.domain.program import ProgramId

WIN, DRAW, LOSS = 1.0, 0.5, 0.0
BASE, K = 1500.0, 32.0
_SCALE = 400.0 / math.log(10.0)
_ROUNDS, _PRECISION = 10_000, 1e-9
_NORMAL_95 = 1.96

Games: TypeAlias = Mapping[Trial, Evaluation | None]
"""Trials, games among them, with their evaluations; None for one that has not ended."""


@dataclass(frozen=True, slots=True)
class Game:
    """A game that ended.

    Attributes:
      score: Of `first`: 1 for a win, 0.5 for a draw, 0 for a loss; that of `second` is 1 - score.
    """

    first: ProgramId
    second: ProgramId
    score: float


@dataclass(frozen=True, slots=True)
class Rating:
    """A Bradley-Terry rating on the scale of Elo, whose mean over the players is `BASE`.

    Attributes:
      low: Lower end of its 95 % confidence interval.
      high: Upper end.
      games: Games that it was computed from.
    """

    value: float
    low: float
    high: float
    games: int


def pairings(stage: str, players: Sequence[ProgramId], games: int) -> tuple[Trial, ...]:
    """Returns the games of a round robin: each pair plays `games` games with each first.

    The case of a trial is the number of the game, from 0; in odd games the sides are swapped.
    """
    return tuple(
        game
        for one, other in combinations(players, 2)
        for game in match(stage, (one, other), games)
    )


def against(
    stage: str, podium: Sequence[ProgramId], others: Sequence[ProgramId], games: int
) -> tuple[Trial, ...]:
    """Returns the games of each of `others` and of the podium's own against the podium."""
    fresh = [player for player in others if player not in podium]
    crossed = [
        game for one in podium for other in fresh for game in match(stage, (one, other), games)
    ]
    return (*pairings(stage, podium, games), *crossed)


def match(
    stage: str, pair: tuple[ProgramId, ProgramId], games: int, turn: int = 0
) -> tuple[Trial, ...]:
    """Returns the games of a pair: 2 * `games`, of which each program begins half.

    Args:
      stage: That of the games.
      pair: Who begins the first of them, and the other program.
      games: Games that each of the two begins.
      turn: The round of a bracket, whose games have numbers of their own.
    """
    first = 2 * games * turn
    return tuple(
        Trial(stage, pair if number % 2 == 0 else pair[::-1], (str(number),))
        for number in range(first, first + 2 * games)
    )


def bracket(
    stage: str, players: Sequence[ProgramId], games: int, played: Games
) -> tuple[Trial, ...]:
    """Returns the games of a single elimination, up to the first round that has not ended.

    The two highest players can meet in the final alone; where the players are no power of two, the
    highest ones have no opponent in the first round.  Who has more points in a match goes on, with
    as many points the higher one.

    Args:
      stage: That of the games.
      players: By rating, the highest first.
      games: Games of a match that each of the two begins.
      played: The games until now.
    """
    trials: list[Trial] = []
    turn, places = 0, list(_places(len(players)))
    while len(places) > 1:
        ended, winners = True, []
        for two in zip(places[::2], places[1::2], strict=True):
            higher, lower = sorted(two)
            if lower >= len(players):
                winners.append(higher)
                continue
            one = match(stage, (players[higher], players[lower]), games, turn)
            trials += one
            ended = ended and all(played.get(game) is not None for game in one)
            winners.append(higher if _ahead(one, played) == players[higher] else lower)
        if not ended:
            break
        turn, places = turn + 1, winners
    return tuple(trials)


def rounds_won(stage: str, player: ProgramId, games: int, played: Games) -> float | None:
    """Returns the share of a bracket's rounds that a player won, or had no opponent in.

    Args:
      stage: That of the games.
      player: One of the players of the bracket.
      games: Games of a match that each of the two begins.
      played: All games of the bracket.

    Returns:
      None where the player has no game.
    """
    turns = {trial: int(trial.cases[0]) // (2 * games) for trial in played if trial.stage == stage}
    mine = [turn for trial, turn in turns.items() if player in trial.players]
    if not mine:
        return None
    last = [t for t, turn in turns.items() if turn == max(mine) and player in t.players]
    last.sort(key=lambda trial: int(trial.cases[0]))
    won = max(mine) + (_ahead(last, played) == player)
    return won / (1 + max(turns.values()))


def _places(players: int) -> Sequence[int]:
    """Returns the ranks of the first round, from 0, pair by pair; a power of two of them."""
    places = [0]
    while len(places) < players:
        last = 2 * len(places) - 1
        places = [rank for higher in places for rank in (higher, last - higher)]
    return places


def _ahead(one: Sequence[Trial], played: Games) -> ProgramId:
    """Returns the player with more points in the games of a match; of equals the first."""
    first, second = one[0].players
    evaluations = [evaluation for game in one if (evaluation := played.get(game)) is not None]
    points = {player: fitness(player, evaluations) or 0.0 for player in (first, second)}
    return second if points[second] > points[first] else first


def elo(
    games: Iterable[Game], before: Mapping[ProgramId, float] | None = None, *, k: float = K
) -> dict[ProgramId, float]:
    """Returns the ratings after one rating period: the games of a generation.

    Every expectation is that of the ratings before, so the order of the games is of no effect, and
    the sum of all ratings does not change.

    Args:
      games: The games of the period.
      before: The ratings at its beginning; a player without one has `BASE`.
      k: Most points that one game moves.
    """
    known = dict(before or {})
    change: dict[ProgramId, float] = {}
    for game in games:
        first, second = known.get(game.first, BASE), known.get(game.second, BASE)
        expected = 1.0 / (1.0 + 10.0 ** ((second - first) / 400.0))
        moved = k * (game.score - expected)
        change[game.first] = change.get(game.first, 0.0) + moved
        change[game.second] = change.get(game.second, 0.0) - moved
    return known | {player: known.get(player, BASE) + moved for player, moved in change.items()}


def bradley_terry(games: Iterable[Game], *, prior: float = 1.0) -> dict[ProgramId, Rating]:
    """Returns the rating of each player that fits all games best, with its interval.

    Args:
      games: In any order.
      prior: Drawn games of each player against an average one; > 0.
    """
    table = _Table(games)
    strengths = table.strengths(prior)
    variances = table.variances(strengths, prior)
    mean = sum(math.log(strength) for strength in strengths) / max(1, len(strengths))
    ratings = {}
    for index, player in enumerate(table.players):
        value = BASE + _SCALE * (math.log(strengths[index]) - mean)
        half = _SCALE * _NORMAL_95 * math.sqrt(variances[index])
        played = round(sum(table.played[index]))
        ratings[player] = Rating(value, value - half, value + half, played)
    return ratings


class _Table:
    """The crosstable of some games.

    Attributes:
      players: In the order of their ids, so that the order of the games is of no effect.
      played: Games of each pair; shape `(players, players)`.
      won: Points of each player, in order.
    """

    def __init__(self, games: Iterable[Game]) -> None:
        listed = list(games)
        self.players = sorted({player for game in listed for player in (game.first, game.second)})
        place = {player: index for index, player in enumerate(self.players)}
        n = len(self.players)
        self.played = [[0.0] * n for _ in range(n)]
        points: list[list[float]] = [[] for _ in range(n)]
        for game in listed:
            one, other = place[game.first], place[game.second]
            self.played[one][other] += 1
            self.played[other][one] += 1
            points[one].append(game.score)
            points[other].append(1.0 - game.score)
        self.won = [math.fsum(scores) for scores in points]

    def strengths(self, prior: float) -> list[float]:
        opponents = [[(j, n) for j, n in enumerate(row) if n] for row in self.played]
        strengths = [1.0] * len(self.players)
        for _ in range(_ROUNDS):
            after = [
                (self.won[i] + prior / 2)
                / (
                    prior / (strengths[i] + 1.0)
                    + sum(n / (strengths[i] + strengths[j]) for j, n in row)
                )
                for i, row in enumerate(opponents)
            ]
            moved = max(
                (abs(math.log(b / a)) for a, b in zip(strengths, after, strict=True)), default=0.0
            )
            strengths = after
            if moved < _PRECISION:
                break
        return strengths

    def variances(self, strengths: Sequence[float], prior: float) -> list[float]:
        """Returns the variance of each logarithm's difference from the mean of all."""
        n = len(strengths)
        information = [[0.0] * n for _ in range(n)]
        for i, one in enumerate(strengths):
            information[i][i] += prior * one / (one + 1.0) ** 2
            for j, other in enumerate(strengths):
                if i != j:
                    part = self.played[i][j] * one * other / (one + other) ** 2
                    information[i][i] += part
                    information[i][j] -= part
        covariance = _inverse(information)
        rows = [math.fsum(row) / n for row in covariance]
        whole = math.fsum(rows) / max(1, n)
        return [covariance[i][i] - 2 * rows[i] + whole for i in range(n)]


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Returns the inverse of a positive definite matrix, by Gauss and Jordan."""
    n = len(matrix)
    rows = [[*row, *(1.0 if i == j else 0.0 for j in range(n))] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = rows[i][i]
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(n):
            if j != i and rows[j][i]:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[n:] for row in rows]
