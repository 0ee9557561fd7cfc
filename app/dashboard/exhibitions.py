"""Games of a person against a program of a run, whose moves are made in a sandbox of the dashboard.

A position is asked for with all moves so far, so the dashboard keeps no game.  The dashboard of a
deployment has no sandbox: it is where the ledger's password is, and no worker of queue `cpu`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.dashboard.control import ChangeRefused
from app.dashboard.reads import RunReader
from app.domain.problem import Problem
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.domain.secrets import redacted
from app.engine.exhibition import Exhibition, Forfeit
from app.ports.protocols import Sandbox
from app.reports.program import bounded, program_named

MOST_MOVES, MOST_CHARS = 2000, 80
"""Bounds of a game that a person plays, as of those that programs play."""


@dataclass(frozen=True, slots=True)
class PositionDocument:
    """A position of a game against a program.

    Attributes:
      moves: From the beginning, with the answer of the program where it was asked.
      legal: The moves that may be made now; [] where the game is over.
      over: How it ended; "" while it goes on.
    """

    program: ProgramId
    moves: list[str]
    position: str
    legal: list[str]
    over: str


class Exhibitions:
    """Asks programs for their moves, one at a time."""

    def __init__(self, reader: RunReader, sandbox: Sandbox | None) -> None:
        """Starts nothing; `sandbox` is None where the dashboard runs no programs."""
        self._reader = reader
        self._sandbox = sandbox
        self._one = asyncio.Lock()

    @property
    def offered(self) -> bool:
        """Whether this dashboard runs programs."""
        return self._sandbox is not None

    async def turn(
        self, run: Run, program: str, moves: Sequence[str], *, answer: bool
    ) -> PositionDocument:
        """Returns the position after some moves.

        Args:
          run: The run.
          program: Beginning of the program's id; "" for the best of the run.
          moves: From the beginning of the game.
          answer: Whether the program is to make the next move.

        Raises:
          ChangeRefused: Nobody can play here; the message says why.
          LookupError: There is no such program, or more than one.
          Unavailable: The sandbox or the ledger does not answer.
        """
        if len(moves) > MOST_MOVES or any(len(move) > MOST_CHARS for move in moves):
            raise ChangeRefused(f"a game has at most {MOST_MOVES} moves of {MOST_CHARS} characters")
        async with self._one:
            return await asyncio.to_thread(self._turn, run, program, list(moves), answer)

    def _turn(self, run: Run, program: str, moves: list[str], answer: bool) -> PositionDocument:
        if self._sandbox is None:
            raise ChangeRefused(
                f"the dashboard of a deployment runs no programs: `evoq play {run.name}` plays "
                f"against them in a terminal"
            )
        opponent = self._opponent(run, program)
        game = Exhibition(self._problem(run), opponent, self._sandbox)
        try:
            found = game.answered(moves) if answer else game.shown(moves)
        except Forfeit as forfeit:
            return PositionDocument(opponent.id, moves, "", [], bounded(redacted(str(forfeit))))
        made = [*moves, found.move] if found.move else moves
        text, over = bounded(redacted(found.text)), redacted(found.over)[:400]
        return PositionDocument(opponent.id, made, text, list(found.legal), over)

    def _problem(self, run: Run) -> Problem:
        try:
            problem = self._reader.problem(run.problem)
        except ValueError as error:
            raise ChangeRefused(f"this version cannot read the problem: {error}") from error
        if problem.players == 1:
            raise ChangeRefused(f"{run.name}: `{problem.name}` is no game")
        return problem

    def _opponent(self, run: Run, beginning: str) -> Program:
        with self._reader.store.begin() as tx:
            if beginning:
                program = program_named(tx, run, beginning)
            else:
                best = tx.history.best(run.id)
                if best is None or best.program is None:
                    raise LookupError(f"{run.name} has no program that was measured yet")
                program = best.program
            return tx.programs.get([program])[program]
