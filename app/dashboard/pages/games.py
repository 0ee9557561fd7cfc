"""The page of a run's games: boards, crosstable, ratings, generations and directions, live."""

from collections.abc import Sequence
from functools import partial
from html import escape
from itertools import zip_longest

from nicegui import ui

from app.dashboard.games import BoardDocument, GamesDocument, GenerationDocument
from app.dashboard.pages.charts import ratings
from app.dashboard.pages.layout import (
    Cell,
    Chart,
    Grid,
    Link,
    Tiles,
    heading,
    keep_live,
    late,
    links,
    page,
    say,
    set_text,
    table,
)
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import shown
from app.domain.program import ProgramId
from app.domain.run import Run
from app.reports.boards import picture, position_after
from app.reports.games import DirectedChild, PlayedGame, Standing

MOST_BOARDS = 8
MOST_ENDED = 100
"""Games that are listed, the newest first."""
MOST_CROSSED = 24
"""Players of the crosstable."""
_SHORT = 8
"""Characters of a program's id, where many stand beside each other."""


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/games", response_timeout=30)
    async def games_page(name: str, generation: int | None = None) -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(f"Games of {run.name}"):
            async with late():
                await _draw(sources, run, generation)


async def _draw(sources: Sources, run: Run, generation: int | None) -> None:
    try:
        await sources.games(run, generation)
    except LookupError as error:
        say(shown(f"{error}: the page of all games lists those that are kept."))
        links([Link("Games", f"/run/{run.id}/games")])
        return
    view = _GamesView(sources, run, generation)
    keep_live(view.refresh)


def result(game: PlayedGame) -> str:
    """Returns the points of both players."""
    if game.score is None:
        return "void"
    halves = {0.0: "0", 0.5: "½", 1.0: "1"}
    both = (game.score, 1 - game.score)
    return " – ".join(halves.get(points, f"{points:.3g}") for points in both)


def ending(termination: str, failure: str | None, culprit: str | None) -> str:
    """Returns how a game ended, and by whose fault."""
    fault = f"{failure} of {culprit[:_SHORT]}" if failure and culprit else failure or ""
    return shown(", ".join(part for part in (termination.replace("_", " "), fault) if part))[:200]


class _GamesView:
    """The elements of one viewer's page."""

    def __init__(self, sources: Sources, run: Run, cohort: int | None) -> None:
        """Draws them without values."""
        self._sources, self._run, self._cohort = sources, run, cohort
        self._drawn: GamesDocument | None = None
        base = f"/run/{run.id}"
        newest = [Link("Newest generation", f"{base}/games")] if cohort is not None else []
        play = Link("Play against the best", f"{base}/play")
        data = Link("As data", f"/api/runs/{run.id}/games")
        links([Link(run.name, base), *newest, play, data])
        self._empty = say("", "notice")
        self._tiles = Tiles(("generation", "ended", "being played", "waiting"))
        heading("Boards")
        with ui.element("div").classes("boards").props('role=region aria-label="Boards"') as box:
            self._boards: list[_Board] = []
        self._box = box
        heading("Crosstable")
        say("Points of the player of a line against that of a column, and their games.", "grey")
        self._cross = ui.html("", sanitize=False).classes("scroll")
        self._cross.props('tabindex=0 role=region aria-label="Crosstable"')
        heading("Ratings")
        say(
            "Bradley-Terry ratings of those who were on a podium, with their 95 % intervals, from "
            "the games of the newest generations of this island.",
            "grey",
        )
        self._chart = Chart("Ratings of champions and runners-up")
        rated = ("player", "rating", "95 % interval", "games", "Elo")
        self._ratings = Grid(
            rated, name="Ratings", empty="No generation has ended yet.", numbers=rated[1:]
        )
        self._generations = table(
            "Generations",
            ("generation", "champion", "change", "runner-up", "entrants", "dropped", "games"),
            "No generation has begun.",
            numbers=("entrants", "games"),
        )
        self._directions = table(
            "Directions",
            ("proposal", "category", "direction", "by", "outcome", "program"),
            "No child was given a direction: the operator `directed` asks a strategist.",
            numbers=("proposal",),
            words="direction",
        )
        self._ended = table(
            "Games that ended",
            ("first", "second", "result", "moves", "how it ended", "replay"),
            "No game has ended yet.",
            numbers=("moves",),
        )

    async def refresh(self) -> None:
        found = await self._sources.games(self._run, self._cohort)
        before, self._drawn = self._drawn, found
        if before is found:
            return
        if before is None or before.boards != found.boards or before.cohort != found.cohort:
            self._show_boards(found)
        if before is None or before.cohort != found.cohort or _ended(before) != _ended(found):
            self._cross.set_content(self._crosstable(found.standings[:MOST_CROSSED]))
            self._ended.show(self._ended_rows(found.boards))
        if before is None or (before.ratings, before.cohort) != (found.ratings, found.cohort):
            self._show_ratings(found)
        self._generations.show([self._generation(each) for each in reversed(found.generations)])
        self._directions.show([self._direction(each) for each in reversed(found.directions)])

    def _show_boards(self, found: GamesDocument) -> None:
        states = [board.state for board in found.boards]
        chosen = next((g for g in found.generations if g.cohort == found.cohort), None)
        self._tiles.show(
            generation=_named(chosen) if chosen else "–",
            ended=f"{states.count('ended')} of {len(states)}",
            being_played=str(states.count("at work")),
            waiting=str(states.count("waiting")),
        )
        set_text(self._empty, "" if states else _why_empty(found))
        boards = found.boards[:MOST_BOARDS]
        with self._box:
            while len(self._boards) < len(boards):
                self._boards.append(_Board(self._run))
        for element, board in zip_longest(self._boards, boards):
            element.show(board)

    def _crosstable(self, standings: Sequence[Standing]) -> str:
        if not standings:
            return '<span class="grey">No game has ended yet.</span>'
        players = [standing.program for standing in standings]
        names = "".join(f'<th scope="col">{_id(player)}</th>' for player in players)
        lines = "".join(
            f'<tr><th scope="row">{self._anchor(standing.program)}</th>'
            f"<td><b>{standing.points:g}/{standing.games}</b></td>"
            + "".join(f"<td>{_against(standing, other)}</td>" for other in players)
            + "</tr>"
            for standing in standings
        )
        head = f'<tr><th scope="col">player</th><th scope="col">points</th>{names}</tr>'
        return f'<table class="plain cross"><thead>{head}</thead><tbody>{lines}</tbody></table>'

    def _anchor(self, program: ProgramId) -> str:
        return f'<a href="{escape(self._page(program))}">{_id(program)}</a>'

    def _ended_rows(self, boards: Sequence[BoardDocument]) -> list[list[Cell]]:
        games = [board.game for board in boards if board.game is not None]
        return [
            [
                self._player(game.first),
                self._player(game.second),
                result(game),
                str(game.moves),
                ending(game.termination, game.failure, game.culprit),
                Link(f"game {game.id}", f"/run/{self._run.id}/games/{game.id}"),
            ]
            for game in sorted(games, key=lambda each: -each.id)[:MOST_ENDED]
        ]

    def _show_ratings(self, found: GamesDocument) -> None:
        chosen = next((g for g in found.generations if g.cohort == found.cohort), None)
        of_island = [g for g in found.generations if chosen and g.island == chosen.island]
        self._chart.show(partial(ratings, of_island, found.ratings))
        self._ratings.show(
            [
                [
                    self._player(player.program),
                    f"{player.rating.value:.0f}",
                    f"{player.rating.low:.0f} to {player.rating.high:.0f}",
                    str(player.rating.games),
                    f"{player.elo:.0f}",
                ]
                for player in found.ratings
            ]
        )

    def _generation(self, generation: GenerationDocument) -> list[Cell]:
        champion, runner_up = (*generation.podium, *[""] * 2)[:2]
        return [
            Link(_named(generation), f"/run/{self._run.id}/games?generation={generation.cohort}"),
            self._player(champion) if champion else "it goes on",
            self._change(champion, generation.before),
            self._player(runner_up) if runner_up else "–",
            str(len(generation.entrants)),
            shown(", ".join(sorted(generation.dropped.values())))[:200] or "–",
            str(generation.games),
        ]

    def _change(self, champion: ProgramId, before: Sequence[ProgramId]) -> Cell:
        """Returns whether the champion is another one than before; leads to how they differ."""
        if not champion or not before:
            return "the first" if champion else ""
        if champion == before[0]:
            return "none"
        return Link("promoted: difference", f"{self._page(champion)}?against={before[0]}")

    def _direction(self, child: DirectedChild) -> list[Cell]:
        return [
            str(child.proposal),
            shown(child.category)[:40],
            shown(child.text)[:400],
            shown(child.by)[:40],
            shown(child.outcome)[:100] or "is written",
            self._player(child.program) if child.program else "–",
        ]

    def _player(self, program: ProgramId) -> Link:
        return Link(program[:_SHORT], self._page(program))

    def _page(self, program: ProgramId) -> str:
        return f"/run/{self._run.id}/program/{program}"


class _Board:
    """One game as a card."""

    def __init__(self, run: Run) -> None:
        """Draws it without values."""
        self._run = run
        self._shown: BoardDocument | None = None
        with ui.element("div").classes("board") as self._card:
            self._picture = ui.html("", sanitize=False).classes("picture")
            self._players = say("")
            self._state = say("", "grey")
            self._replay = ui.link("Replay", f"/run/{run.id}/games")

    def show(self, board: BoardDocument | None) -> None:
        """Changes what it shows; None hides it."""
        self._card.set_visibility(board is not None)
        if board is None or board == self._shown:
            return
        self._shown = board
        game = board.game
        state = board.state if board.state != "at work" else "being played"
        blank = f'<div class="blank">{state}</div>'
        if board.moves:
            state += f", move {len(board.moves)}: {shown(board.moves[-1])[:20]}"
        before = position_after(board.moves[:-1])
        drawn = picture(shown(board.position), before) if board.position else blank
        self._picture.set_content(drawn)
        set_text(self._players, f"{board.first[:_SHORT]} – {board.second[:_SHORT]}")
        if game is not None:
            state = f"{result(game)}: {ending(game.termination, game.failure, game.culprit)}"
        set_text(self._state, f"game {board.number + 1} of this pair · {state}")
        self._replay.set_visibility(game is not None)
        if game is not None:
            self._replay.props(f'href="/run/{self._run.id}/games/{game.id}"')


def _ended(found: GamesDocument) -> list[PlayedGame]:
    return [board.game for board in found.boards if board.game is not None]


def _why_empty(found: GamesDocument) -> str:
    if found.generations:
        return "No game of this generation is planned yet: its programs are written and tested."
    return (
        "No game has been played in this run. Games begin when two programs have passed the stages "
        "before them; in a run of a problem without `players: 2` there are none."
    )


def _named(generation: GenerationDocument) -> str:
    island = f" of island {generation.island}" if generation.island else ""
    return f"{generation.number}{island}"


def _against(standing: Standing, other: ProgramId) -> str:
    points, games = standing.against.get(other, (0.0, 0))
    return f"{points:g}/{games}" if games else "·"


def _id(program: ProgramId) -> str:
    return escape(program[:_SHORT])
