"""The page on which a person plays against a program of a run."""

from collections.abc import Awaitable, Callable

from nicegui import ui
from starlette.requests import Request

from app.dashboard.access import AUTHORISED
from app.dashboard.control import ChangeRefused
from app.dashboard.exhibitions import Exhibitions, PositionDocument
from app.dashboard.pages.layout import Link, links, page, say, set_text
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import shown
from app.domain.run import Run
from app.ports.protocols import Unavailable
from app.reports.boards import picture

MOST_BUTTONS = 60
"""Legal moves that have a button; every one can be written."""


def add(sources: Sources, exhibitions: Exhibitions) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/play", response_timeout=30)
    async def play_page(request: Request, name: str, program: str = "") -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(f"Play against {run.name}"):
            links([Link(run.name, f"/run/{run.id}"), Link("Games", f"/run/{run.id}/games")])
            if not exhibitions.offered:
                say(
                    f"The dashboard of a deployment runs no programs. `evoq play {run.name}` plays "
                    f"against them in a terminal.",
                    "notice",
                )
            elif not request.scope.get(AUTHORISED):
                say(
                    "A game starts programs, so it needs the token: open the address that `evoq "
                    "dashboard` printed.",
                    "notice",
                )
            else:
                _ViewersGame(exhibitions, run, program)


class _ViewersGame:
    """One game of one viewer."""

    def __init__(self, exhibitions: Exhibitions, run: Run, program: str) -> None:
        """Draws the buttons that begin a game."""
        self._exhibitions, self._run, self._program = exhibitions, run, program
        self._moves: list[str] = []
        self._legal: list[str] = []
        whom = f"program {shown(program)[:12]}" if program else "the best program of the run"
        say(f"Against {whom}. It moves in a sandbox of this machine; the run stays as it is.")
        with ui.element("div").classes("actions"):
            for label, first in (("I begin", True), ("It begins", False)):
                ui.button(label, on_click=self._beginning(first)).props("outline dense no-caps")
        self._said = say("").props("role=status")
        self._picture = ui.html("", sanitize=False).classes("picture large")
        with (
            ui.element("div").classes("actions").props('aria-label="Legal moves"') as self._choices
        ):
            pass
        self._written = ui.input("Your move").on("keydown.enter", self._write)
        self._written.set_visibility(False)
        self._made = say("", "grey")

    def _beginning(self, first: bool) -> Callable[[], Awaitable[None]]:
        async def begin() -> None:
            await self._ask([], answer=not first)

        return begin

    async def _write(self) -> None:
        move = str(self._written.value or "").strip()
        if move not in self._legal:
            set_text(self._said, f"{shown(move)[:80]!r} is no legal move")
            return
        self._written.set_value("")
        await self._make(move)

    async def _make(self, move: str) -> None:
        if await self._ask([*self._moves, move], answer=False) and self._legal:
            await self._ask(self._moves, answer=True)

    async def _ask(self, moves: list[str], *, answer: bool) -> bool:
        """Shows the position after some moves; returns whether there is one."""
        set_text(self._said, "the program thinks" if answer else "the referee looks at the move")
        self._choices.clear()
        try:
            found = await self._exhibitions.turn(self._run, self._program, moves, answer=answer)
        except (ChangeRefused, LookupError, Unavailable) as error:
            set_text(self._said, shown(str(error)))
            return False
        self._show(found)
        return True

    def _show(self, found: PositionDocument) -> None:
        self._moves, self._legal = found.moves, found.legal
        set_text(self._said, shown(found.over) or "your move")
        if found.position:
            self._picture.set_content(picture(shown(found.position)))
        set_text(self._made, f"moves: {shown(' '.join(found.moves))[-400:]}" if found.moves else "")
        self._written.set_visibility(bool(found.legal))
        with self._choices:
            for move in found.legal[:MOST_BUTTONS]:
                ui.button(shown(move)[:20], on_click=self._making(move)).props(
                    "outline dense no-caps"
                )

    def _making(self, move: str) -> Callable[[], Awaitable[None]]:
        async def make() -> None:
            await self._make(move)

        return make
