"""The page of one game: its position after each move, and how it ended."""

import asyncio
from collections.abc import Callable, Sequence
from html import escape

from nicegui import ui
from nicegui.events import KeyEventArguments, ValueChangeEventArguments

from app.dashboard.games import GameDocument, game_document
from app.dashboard.pages.games import ending
from app.dashboard.pages.layout import Link, Tiles, links, page, say, set_text
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import shown
from app.domain.digits import number_text
from app.domain.run import Run
from app.reports.boards import picture, position_after

_AROUND = 40
"""Moves that are shown before and after the one whose position is drawn."""
_SPEEDS = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Moves a second of a replay."""


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
        points_of_the_first="void" if game.score is None else number_text(game.score),
        moves=str(len(game.moves)),
        ended_by=ending(game.termination, game.failure, game.culprit) or "–",
    )
    replay = _Replay(game)
    replay.go(len(game.moves) if ply is None else ply)


class _Replay:
    """A position, and what leads to another one: steps, a slider, or time at a chosen pace."""

    def __init__(self, game: GameDocument) -> None:
        """Draws them before the first move, and not playing."""
        self._game, self._at = game, 0
        moves = len(game.moves)
        with ui.element("div").classes("actions"):
            self._button("First", lambda: self._step(0))
            self._button("Back", lambda: self._step(self._at - 1))
            self._play = self._button("Play", self._toggle)
            self._button("Next", lambda: self._step(self._at + 1))
            self._button("Last", lambda: self._step(moves))
            speeds = {speed: f"{speed:g} moves a second" for speed in _SPEEDS}
            ui.select(speeds, value=1.0, label="Speed", on_change=self._pace).props(
                "dense outlined options-dense"
            ).style("min-width: 11rem")
        self._slider = (
            ui.slider(min=0, max=max(moves, 1), value=0, on_change=self._slide)
            .props('aria-label="Position" snap')
            .style("max-width: 36rem")
        )
        self._slider.set_enabled(moves > 0)
        self._said = say("").props("role=status")
        self._picture = ui.html("", sanitize=False).classes("picture large")
        self._moves = ui.html("", sanitize=False).classes("moves").props('aria-label="Moves"')
        self._clock = ui.timer(1.0, self._tick, active=False, immediate=False)
        ui.keyboard(on_key=self._pressed, ignore=["input", "select", "textarea"])

    @staticmethod
    def _button(name: str, go: Callable[[], None]) -> ui.button:
        return ui.button(name, on_click=go).props("outline dense no-caps")

    def _pressed(self, pressed: KeyEventArguments) -> None:
        if pressed.action.keydown and pressed.key.arrow_left:
            self._step(self._at - 1)
        if pressed.action.keydown and pressed.key.arrow_right:
            self._step(self._at + 1)

    def _step(self, ply: int) -> None:
        self._run(playing=False)
        self.go(ply)

    def _slide(self, changed: ValueChangeEventArguments[float | None]) -> None:
        if changed.value is not None and changed.value != self._at:
            self.go(int(changed.value))

    def _pace(self, changed: ValueChangeEventArguments[float]) -> None:
        self._clock.interval = 1.0 / float(changed.value)

    def _toggle(self) -> None:
        if not self._clock.active and self._at == len(self._game.moves):
            self.go(0)
        self._run(playing=not self._clock.active)

    def _tick(self) -> None:
        self.go(self._at + 1)
        if self._at == len(self._game.moves):
            self._run(playing=False)

    def _run(self, *, playing: bool) -> None:
        self._clock.active = playing
        self._play.set_text("Pause" if playing else "Play")

    def go(self, ply: int) -> None:
        """Shows the position after so many moves."""
        moves = self._game.moves
        self._at = at = min(max(ply, 0), len(moves))
        self._slider.set_value(at)
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
