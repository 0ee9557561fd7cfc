"""Documents of games: the generations of a run, the boards of one, and a game with its moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.events import EventKind, Played
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.cohort import CohortId, TrialId
from app.domain.secrets import redacted
from app.ports.history import PlannedGame
from app.ports.protocols import Store
from app.reports.boards import position_after
from app.reports.course import Course
from app.reports.games import (
    DirectedChild,
    Generation,
    PlayedGame,
    RatedPlayer,
    Standing,
    crosstable,
)

MOST_BOARDS = 500
"""Games of a generation that its document has, the unfinished first."""
MOST_POSITION = 4000
"""Characters of a position."""


@dataclass(frozen=True, slots=True)
class BoardDocument:
    """A game of the generation that is shown.

    Attributes:
      trial: The trial that it is.
      state: "at work", "waiting" or "ended".
      game: What is known of one that ended.
      position: The last one, as the referee wrote it; of a game at work, that after `moves`; ""
        where it is not known.
      moves: Of a game at work, those that are known by now, as the referee yielded them.  They are
        not events: a replay has them once the game has ended, as `/ws` has for who does not ask.
    """

    trial: TrialId
    first: ProgramId
    second: ProgramId
    number: int
    state: str
    game: PlayedGame | None
    position: str
    moves: list[str]


@dataclass(frozen=True, slots=True)
class GenerationDocument:
    """A generation without its games; see `app.reports.games.Generation`."""

    cohort: CohortId
    island: int
    number: int
    before: list[ProgramId]
    entrants: list[ProgramId]
    dropped: dict[ProgramId, str]
    games: int
    podium: list[ProgramId]


@dataclass(frozen=True, slots=True)
class GamesDocument:
    """The games of a run.

    Attributes:
      seq: The last event that is in the document.
      generations: The newest, oldest first.
      cohort: The generation of `boards` and `standings`; None before there is one.
      boards: Games at work, games that wait, then the newest that ended.
      standings: The crosstable of its ended games, the most successful player first.
      ratings: Of those on the podiums of its island, the best first.
      directions: The newest, oldest first.
    """

    run: int
    seq: int
    generations: list[GenerationDocument]
    cohort: CohortId | None
    boards: list[BoardDocument]
    standings: list[Standing]
    ratings: list[RatedPlayer]
    directions: list[DirectedChild]


@dataclass(frozen=True, slots=True)
class LiveGame:
    """The moves so far of a game that is being played.

    Attributes:
      trial: The trial that it is.
      number: Of the game between these two, in this order.
      moves: From the beginning, as the referee yielded them.
      position: The one that they lead to; "" where the notation is not known.
    """

    run: int
    trial: TrialId
    cohort: CohortId
    first: ProgramId
    second: ProgramId
    number: int
    moves: list[str]
    position: str


@dataclass(frozen=True, slots=True)
class GameDocument:
    """A game that ended; see `app.domain.events.Played`.

    Attributes:
      position: The last one, as the referee wrote it; "" where it wrote none.
    """

    run: int
    id: int
    cohort: CohortId
    first: ProgramId
    second: ProgramId
    number: int
    score: float | None
    moves: list[str]
    termination: str
    failure: str | None
    culprit: ProgramId | None
    position: str


def games_document(
    store: Store, run: Run, course: Course, cohort: CohortId | None = None
) -> GamesDocument:
    """Returns the games of a run.

    Args:
      store: The ledger.
      run: The run.
      course: Its course, to which another thread may add.
      cohort: The generation whose games are wanted; None for the newest that has any.

    Raises:
      LookupError: That generation is not one of the newest.
    """
    seq, generations = course.progress.seq, list(course.games.generations.values())
    shown, planned = _read_games(store, run, generations, cohort)
    ended = shown.games[:] if shown else []
    known = {(game.first, game.second, game.number): game for game in ended}
    return GamesDocument(
        run=run.id,
        seq=seq,
        generations=[_generation(generation) for generation in generations],
        cohort=shown.cohort if shown else None,
        boards=[_board(game, known) for game in planned],
        standings=crosstable(ended),
        ratings=course.games.ratings(shown.island) if shown else [],
        directions=list(course.games.directions.values()),
    )


def _read_games(
    store: Store, run: Run, generations: list[Generation], cohort: CohortId | None
) -> tuple[Generation | None, list[PlannedGame]]:
    """Returns the generation that is shown and its games.

    Raises:
      LookupError: There is no such generation.
    """
    chosen = [each for each in generations if cohort in (None, each.cohort)]
    if cohort is not None and not chosen:
        raise LookupError(f"{run.name} has no generation {cohort} among its newest")
    with store.begin() as tx:
        # The children of the newest generation may still be written.
        for generation in chosen[:-3:-1]:
            if games := tx.history.games(run.id, generation.cohort, MOST_BOARDS):
                return generation, games
    return (chosen[-1] if chosen else None), []


def _generation(generation: Generation) -> GenerationDocument:
    return GenerationDocument(
        cohort=generation.cohort,
        island=generation.island,
        number=generation.number,
        before=list(generation.before),
        entrants=list(generation.entrants),
        dropped=dict(generation.dropped),
        games=len(generation.games),
        podium=list(generation.podium),
    )


def _board(
    planned: PlannedGame, known: Mapping[tuple[ProgramId, ProgramId, int], PlayedGame]
) -> BoardDocument:
    return BoardDocument(
        trial=planned.trial,
        first=planned.first,
        second=planned.second,
        number=planned.number,
        state="ended" if planned.ended else "at work" if planned.at_work else "waiting",
        game=known.get((planned.first, planned.second, planned.number)),
        position=redacted(planned.position[:MOST_POSITION]),
        moves=[],
    )


def at_work(games: GamesDocument) -> list[TrialId]:
    """Returns the games that are being played."""
    return [board.trial for board in games.boards if board.state == "at work"]


def with_moves(games: GamesDocument, moves: Mapping[TrialId, Sequence[str]]) -> GamesDocument:
    """Returns a document with the moves of games that are being played, and their positions."""
    boards = [
        replace(board, moves=list(made), position=position_after(made))
        if board.state == "at work" and (made := moves.get(board.trial))
        else board
        for board in games.boards
    ]
    return replace(games, boards=boards)


def games_at_work(store: Store, run: int, course: Course) -> dict[PlannedGame, CohortId]:
    """Returns the games that are being played, with their generations.

    Args:
      store: The ledger.
      run: The run.
      course: Its course, to which another thread may add.
    """
    newest = {each.island: each.cohort for each in list(course.games.generations.values())}
    with store.begin() as tx:
        return {
            game: cohort
            for cohort in newest.values()
            for game in tx.history.games(run, cohort, MOST_BOARDS)
            if game.at_work
        }


def live_games(
    run: int, games: Mapping[PlannedGame, CohortId], moves: Mapping[TrialId, Sequence[str]]
) -> list[LiveGame]:
    """Returns the games of which a move is known, by trial."""
    return [
        LiveGame(
            run=run,
            trial=game.trial,
            cohort=cohort,
            first=game.first,
            second=game.second,
            number=game.number,
            moves=list(made),
            position=position_after(made),
        )
        for game, cohort in sorted(games.items(), key=lambda item: item[0].trial)
        if (made := moves.get(game.trial))
    ]


def game_document(store: Store, run: Run, game: int) -> GameDocument:
    """Returns a game that ended.

    Args:
      store: The ledger.
      run: The run.
      game: `seq` of the event that it ended with.

    Raises:
      LookupError: There is no such game.
    """
    with store.begin() as tx:
        page = tx.events.read(run.id, after=game - 1, limit=1, kinds=(EventKind.PLAYED,))
        event = page[0] if page and page[0].seq == game else None
        if event is None or not isinstance(event.fact, Played):
            raise LookupError(f"{run.name} has no game {game}")
        fact = event.fact
        planned = tx.history.games(run.id, fact.cohort, MOST_BOARDS)
    seats = fact.first, fact.second, fact.game
    position = next(
        (each.position for each in planned if (each.first, each.second, each.number) == seats), ""
    )
    return GameDocument(
        run=run.id,
        id=game,
        cohort=fact.cohort,
        first=fact.first,
        second=fact.second,
        number=fact.game,
        score=fact.score,
        moves=list(fact.moves),
        termination=fact.termination,
        failure=fact.failure,
        culprit=fact.culprit,
        position=redacted(position[:MOST_POSITION]),
    )
