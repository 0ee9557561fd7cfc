"""The page of one game: its position after each move, and how it ended."""

import asyncio
from collections.abc import Sequence
from html import escape

from nicegui import ui
from nicegui.events import KeyEventArguments

from app.dashboard.games import GameDocument, game_document
from app.dashboard.pages.games import ending
from app.dashboard.pages.layout import Link, Tiles, links, page, say, set_text
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import number, shown
from app.domain.run import Run
from app.reports.boards import picture, position_after

_AROUND = 40
"""Moves that are shown before and after the one whose position is drawn."""


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/games/{game}", response_timeout=30)
    async def game_page(name: str, game: str, ply: int | None = None) -> None:
        run = await sources.run(name)
        if run is None:
            return
        try:
            found = await asyncio.to_thread(_read, sources, run, game)
        except LookupError as error:
            with page("No such game"):
                say(shown(f"{error}. The page of its games lists them."))
                links([Link("Games", f"/run/{run.id}/games")])
            return
        with page(f"Game {found.id} of {run.name}"):
            _draw(run, found, ply)


def _read(sources: Sources, run: Run, game: str) -> GameDocument:
    if not game.isdecimal() or len(game) > 15:
        raise LookupError(f"{run.name} has no game {game[:40]!r}")
    return game_document(sources.reader.store, run, int(game))


def _draw(run: Run, game: GameDocument, ply: int | None) -> None:
    base = f"/run/{run.id}"
    links(
        [
            Link(run.name, base),
            Link("Games of its generation", f"{base}/games?generation={game.cohort}"),
            Link(f"First: {game.first[:12]}", f"{base}/program/{game.first}"),
            Link(f"Second: {game.second[:12]}", f"{base}/program/{game.second}"),
        ]
    )
    tiles = Tiles(("points of the first", "moves", "ended by"))
    tiles.show(
        points_of_the_first="void" if game.score is None else number(game.score),
        moves=str(len(game.moves)),
        ended_by=ending(game.termination, game.failure, game.culprit) or "–",
    )
    replay = _Replay(game)
    replay.go(len(game.moves) if ply is None else ply)


class _Replay:
    """A position and the buttons that lead to another one."""

    def __init__(self, game: GameDocument) -> None:
        """Draws them without a position."""
        self._game, self._at = game, 0
        moves = len(game.moves)
        with ui.element("div").classes("actions"):
            for name, go in (
                ("First", lambda: self.go(0)),
                ("Back", lambda: self.go(self._at - 1)),
                ("Next", lambda: self.go(self._at + 1)),
                ("Last", lambda: self.go(moves)),
            ):
                ui.button(name, on_click=go).props("outline dense no-caps")
        self._said = say("").props("role=status")
        self._picture = ui.html("", sanitize=False).classes("picture large")
        self._moves = ui.html("", sanitize=False).classes("moves").props('aria-label="Moves"')
        ui.keyboard(on_key=self._pressed, ignore=["input", "select", "textarea"])

    def _pressed(self, pressed: KeyEventArguments) -> None:
        if pressed.action.keydown and pressed.key.arrow_left:
            self.go(self._at - 1)
        if pressed.action.keydown and pressed.key.arrow_right:
            self.go(self._at + 1)

    def go(self, ply: int) -> None:
        """Shows the position after so many moves."""
        moves = self._game.moves
        self._at = at = min(max(ply, 0), len(moves))
        position = self._position(at)
        by = "the first player" if at % 2 else "the second player"
        made = (
            f"after move {at} of {len(moves)}: {shown(moves[at - 1])} by {by}"
            if at
            else (f"before the first of {len(moves)} moves")
        )
        unknown = "" if position else "; this position is not known: the last one may be"
        set_text(self._said, made + unknown)
        before = shown(self._position(at - 1)) if at else ""
        self._picture.set_content(picture(shown(position), before) if position else "")
        self._moves.set_content(_moves(moves, at))

    def _position(self, at: int) -> str:
        if at == len(self._game.moves) and self._game.position:
            return self._game.position
        return position_after(self._game.moves[:at])


def _moves(moves: Sequence[str], at: int) -> str:
    """Returns the moves around the one that was made last."""
    first, last = max(0, at - _AROUND), min(len(moves), at + _AROUND)
    parts = [
        f"<mark>{ply}. {escape(shown(moves[ply - 1]))}</mark>"
        if ply == at
        else f"{ply}. {escape(shown(moves[ply - 1]))}"
        for ply in range(first + 1, last + 1)
    ]
    return ("… " if first else "") + " ".join(parts) + (" …" if last < len(moves) else "")
