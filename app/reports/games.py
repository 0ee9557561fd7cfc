"""Games of a run: its generations, directions and podiums, folded from its events one by one.

The fold is bounded: it keeps the newest generations and directions, and of a game where its moves
are to be read, not the moves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from app.domain.events import (
    Admitted,
    Closed,
    Cut,
    Directed,
    Entered,
    Event,
    Failed,
    GateTested,
    Played,
    Refused,
)
from app.domain.games import BASE, Game, Rating, bradley_terry, elo
from app.domain.program import ProgramId

MOST_GENERATIONS = 32
"""Newest generations that are kept."""
MOST_DIRECTIONS = 50
"""Newest directions that are kept."""
MOST_RATED = 40
"""Players that are rated at once: the podiums of the newest generations."""


@dataclass(frozen=True, slots=True)
class PlayedGame:
    """A game that ended.

    Attributes:
      id: `seq` of its event, which has the moves.
      number: Of the game between these two.
      score: Points of `first`; None where the game is void.
      moves: How many were made.
      failure: Why it was cut short, and `culprit` whose fault that was; None where it was not.
    """

    id: int
    first: ProgramId
    second: ProgramId
    number: int
    score: float | None
    moves: int
    termination: str
    failure: str | None
    culprit: ProgramId | None


@dataclass(slots=True)
class Generation:
    """One cohort of an island.

    Attributes:
      number: From 0: the n-th cohort of its island; 0 is that of the seeds.
      before: The podium at its beginning, the champion first.
      dropped: Programs that failed before the games, with the failure.
      podium: The champion and the runner-up at its end; () before it.
    """

    cohort: int
    island: int
    number: int
    before: tuple[ProgramId, ...] = ()
    entrants: list[ProgramId] = field(default_factory=list)
    dropped: dict[ProgramId, str] = field(default_factory=dict)
    games: list[PlayedGame] = field(default_factory=list)
    podium: tuple[ProgramId, ...] = ()


@dataclass(frozen=True, slots=True)
class DirectedChild:
    """A direction and what became of the child that was to follow it.

    Attributes:
      program: None while the child is written, and where none was.
      outcome: "" while it is not known.
    """

    proposal: int
    island: int
    category: str
    text: str
    by: str
    program: ProgramId | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """A player in the crosstable of a generation.

    Attributes:
      points: Of the games that count; `games` is how many.
      against: Its points and games against each other player, by opponent.
    """

    program: ProgramId
    points: float
    games: int
    against: dict[ProgramId, tuple[float, int]]

    @property
    def share(self) -> float:
        """The share of the points; 0 without a game that counts."""
        return self.points / self.games if self.games else 0.0


def crosstable(games: Iterable[PlayedGame]) -> list[Standing]:
    """Returns the players of some games, the largest share of the points first; ties: by id."""
    against: dict[ProgramId, dict[ProgramId, tuple[float, int]]] = {}
    for game in games:
        for player in (game.first, game.second):
            against.setdefault(player, {})
        if game.score is None:
            continue
        pairs = ((game.first, game.second, game.score), (game.second, game.first, 1 - game.score))
        for player, other, score in pairs:
            points, played = against[player].get(other, (0.0, 0))
            against[player][other] = points + score, played + 1
    table = [
        Standing(
            player,
            sum(points for points, _ in results.values()),
            sum(played for _, played in results.values()),
            results,
        )
        for player, results in against.items()
    ]
    return sorted(table, key=lambda each: (-each.share, each.program))


@dataclass(frozen=True, slots=True)
class RatedPlayer:
    """A player of the newest generations.

    Attributes:
      rating: Bradley-Terry, with its 95 % interval, from the games between rated players.
      elo: After all kept generations as rating periods.
    """

    program: ProgramId
    rating: Rating
    elo: float


def rated(generations: Sequence[Generation]) -> list[RatedPlayer]:
    """Returns the ratings of those who were on a podium of ended generations, the best first.

    Args:
      generations: Of one island, oldest first.  Of more than `MOST_RATED` players the newest are
        rated.
    """
    podiums: dict[ProgramId, None] = {}
    for generation in reversed(generations):
        podiums |= dict.fromkeys(generation.podium)
    players = set(list(podiums)[:MOST_RATED])
    games = [list(_counted(generation)) for generation in generations if generation.podium]
    among = [
        game
        for period in games
        for game in period
        if game.first in players and game.second in players
    ]
    ratings: dict[ProgramId, float] = {}
    for period in games:
        ratings = elo(period, ratings)
    found = [
        RatedPlayer(player, rating, ratings.get(player, BASE))
        for player, rating in bradley_terry(among).items()
    ]
    return sorted(found, key=lambda each: (-each.rating.value, each.program))


def _counted(generation: Generation) -> Iterable[Game]:
    for game in generation.games:
        if game.score is not None:
            yield Game(game.first, game.second, game.score)


class Games:
    """The games of a run by its events so far.

    Attributes:
      generations: The newest `MOST_GENERATIONS` by cohort, oldest first.
      directions: The newest `MOST_DIRECTIONS` by proposal, oldest first.
      closed: Generations that have ended, those included that are no longer kept.
    """

    def __init__(self) -> None:
        """Begins before the first event."""
        self.generations: dict[int, Generation] = {}
        self.directions: dict[int, DirectedChild] = {}
        self.closed = 0
        self._begun: dict[int, int] = {}
        self._podiums: dict[int, tuple[ProgramId, ...]] = {}
        self._rated: dict[int, tuple[int, list[RatedPlayer]]] = {}

    def add(self, event: Event) -> None:
        """Folds in the next event."""
        match event.fact:
            case Directed() as fact:
                self._direct(fact)
            case Entered() as fact:
                self._of(fact.cohort, fact.island).entrants.append(fact.program)
                self._outcome(fact.proposal, program=fact.program, outcome="entered")
            case GateTested(failure=failure) as fact if failure is not None:
                self._of(fact.cohort).dropped[fact.program] = failure
            case Played() as fact:
                self._of(fact.cohort).games.append(_game(event.seq, fact))
            case Closed() as fact:
                self._of(fact.cohort, fact.island).podium = fact.podium
                self._podiums[fact.island] = fact.podium
                self.closed += 1
            case Failed() as fact if self.directions:
                self._outcome(
                    fact.proposal, program=fact.program, outcome=f"failed: {fact.failure}"
                )
            case Cut() as fact if self.directions:
                self._outcome(fact.proposal, program=fact.program, outcome=f"cut: {fact.why}")
            case Admitted() | Refused() as fact if self.directions and fact.proposal is not None:
                outcome = "took a place" if isinstance(fact, Admitted) else "took no place"
                self._outcome(fact.proposal, program=fact.program, outcome=outcome)
            case _:
                pass

    def ratings(self, island: int) -> list[RatedPlayer]:
        """Returns the ratings of an island's players; computed once for each ended generation.

        Another thread may add events meanwhile.
        """
        closed = self.closed
        known = self._rated.get(island)
        if known is None or known[0] != closed:
            kept = [each for each in list(self.generations.values()) if each.island == island]
            known = self._rated[island] = closed, rated(kept)
        return known[1]

    def _of(self, cohort: int, island: int = 0) -> Generation:
        """Returns a generation; its first event begins it."""
        found = self.generations.get(cohort)
        if found is None:
            number = self._begun.get(island, 0)
            self._begun[island] = number + 1
            found = Generation(cohort, island, number, self._podiums.get(island, ()))
            self.generations[cohort] = found
            if len(self.generations) > MOST_GENERATIONS:
                del self.generations[next(iter(self.generations))]
        return found

    def _direct(self, fact: Directed) -> None:
        self.directions[fact.proposal] = DirectedChild(
            fact.proposal, fact.island, fact.category, fact.text, fact.by
        )
        if len(self.directions) > MOST_DIRECTIONS:
            del self.directions[next(iter(self.directions))]

    def _outcome(self, proposal: int, *, program: ProgramId | None, outcome: str) -> None:
        found = self.directions.get(proposal)
        if found is not None:
            known = program or found.program
            self.directions[proposal] = replace(found, program=known, outcome=outcome)


def _game(seq: int, fact: Played) -> PlayedGame:
    return PlayedGame(
        id=seq,
        first=fact.first,
        second=fact.second,
        number=fact.game,
        score=fact.score,
        moves=len(fact.moves),
        termination=fact.termination,
        failure=fact.failure,
        culprit=fact.culprit,
    )
