"""Exhibitions: games of a person against a program, beside any run.

The evaluator of the problem is the referee: its function `turn` shows a position, and has the
program move there.  Each call replays the moves so far, so nothing is kept between two of them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.domain.problem import Problem
from app.domain.program import Program
from app.ports.protocols import Sandbox

TURN = "turn"
"""The function of an evaluator that shows a position, and has a program move there."""


class Forfeit(Exception):
    """The program did not move, or the evaluator shows no positions; the message says why."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position after some moves.

    Attributes:
      text: As the referee writes it.
      legal: The moves that may be made; () where the game is over.
      move: The one that the program made just now; "" where it was not asked.
      over: How the game ended; "" while it goes on.
    """

    text: str
    legal: tuple[str, ...]
    move: str
    over: str


@dataclass(frozen=True, slots=True)
class Exhibition:
    """A game between a person and a program."""

    problem: Problem
    program: Program
    sandbox: Sandbox

    def shown(self, moves: Iterable[str]) -> Position:
        """Returns the position after some moves; see `Forfeit`."""
        return self._ask("show", moves)

    def answered(self, moves: Iterable[str]) -> Position:
        """Returns the position after some moves and the program's answer; see `Forfeit`."""
        return self._ask("move", moves)

    def _ask(self, what: str, moves: Iterable[str]) -> Position:
        job = self.problem.prepare(
            self.problem.trials_of(self.program.id, self.problem.stages[0])[0],
            {self.program.id: self.program},
        )
        outcome = self.sandbox.run(replace(job, function=TURN, cases=(what, *moves)))
        if outcome.failure is not None or outcome.result is None:
            failure = outcome.failure
            detail = f"{failure.kind.value}: {failure.shown}" if failure else "no result"
            raise Forfeit(f"the program lost: {detail}")
        metrics = json.loads(outcome.result)["metrics"]
        try:
            legal = tuple(str(move) for move in metrics["legal"])
            texts = [str(metrics[name]) for name in ("position", "move", "over")]
        except (KeyError, TypeError) as error:
            raise Forfeit(f"`{TURN}` of the evaluator returned no position: {error!r}") from error
        position, move, over = texts
        return Position(position, () if over else legal, move, over)
