"""Ratings of the programs of a run, as a fold over the games in the ledger."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.domain.events import EventKind, Played
from app.domain.games import Game, bradley_terry, elo
from app.domain.program import ProgramId
from app.domain.search.cohort import CohortId
from app.ports.ledger import Transaction

MOST_RATED = 100
"""Players that are rated: those who played last.  The time of an interval grows as their cube."""
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class RatedProgram:
    """A program with its ratings by all games between the rated programs.

    Attributes:
      rating: Bradley-Terry, on the scale of Elo; the mean of the rated programs is 1500.
      low: Lower end of its 95 % confidence interval.
      high: Upper end.
      elo: By rating periods of a generation each, from all games of the run.
      games: Games that `rating` was computed from.
      points: Its points in them.
    """

    program: ProgramId
    rating: float
    low: float
    high: float
    elo: float
    games: int
    points: float


def read_ratings(tx: Transaction, run: int) -> list[RatedProgram]:
    """Returns the programs of a run that played last, highest rating first; ties: by id."""
    return rated(played_games(tx, run))


def played_games(tx: Transaction, run: int) -> Iterator[Played]:
    """Yields the games of a run in the order in which they were recorded, read page by page."""
    after = 0
    while page := tx.events.read(run, after, _PAGE, (EventKind.PLAYED,)):
        yield from (event.fact for event in page if isinstance(event.fact, Played))
        after = page[-1].seq


def rated(games: Iterable[Played]) -> list[RatedProgram]:
    """Returns the players of games; see `read_ratings`.  A game without points counts for nothing.

    Args:
      games: In the order in which they were recorded.
    """
    periods: dict[CohortId, list[Game]] = {}
    for game in games:
        if game.score is not None:
            played = Game(game.first, game.second, game.score)
            periods.setdefault(game.cohort, []).append(played)
    ratings: dict[ProgramId, float] = {}
    for period in periods.values():
        ratings = elo(period, ratings)
    counted = [played for period in periods.values() for played in period]
    newest: dict[ProgramId, None] = {}
    for played in reversed(counted):
        newest |= {played.first: None, played.second: None}
    chosen = set(list(newest)[:MOST_RATED])
    kept = [played for played in counted if {played.first, played.second} <= chosen]
    points = dict.fromkeys(chosen, 0.0)
    for played in kept:
        points[played.first] += played.score
        points[played.second] += 1.0 - played.score
    programs = [
        RatedProgram(p, r.value, r.low, r.high, ratings[p], r.games, points[p])
        for p, r in bradley_terry(kept).items()
    ]
    return sorted(programs, key=lambda rated: (-rated.rating, rated.program))
