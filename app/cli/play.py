"""`evoq play`: a person plays against a program of a run, in the terminal."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.options import Debug, Json, RunName
from app.cli.output import CommandError, Screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from app.cli.target import Ledger
    from app.domain.problem import Problem
    from app.domain.program import Program
    from app.domain.run import Run
    from app.ports.protocols import Sandbox

TURN = "turn"
"""The function of an evaluator that shows a position, and has a program move there."""


def play(
    name: RunName,
    program: Annotated[
        str | None,
        typer.Option("--program", metavar="ID", help="Beginning of its id, else the champion."),
    ] = None,
    second: Annotated[
        bool, typer.Option("--second", help="Let the program make the first move.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Plays a game against a program of a run: one move on each line of standard input.

    The program runs in a sandbox of this command; no worker is needed, and the run stays as it is.

    Examples:
      evoq play connect_four-1
      evoq play connect_four-1 --program 3f2a --second
    """
    from app.cli.measurement import open_sandbox
    from app.cli.target import open_run, stored_problem
    from app.config.settings import SandboxSettings

    screen = Screen(json=as_json)
    with open_run(name) as (ledger, run):
        problem = stored_problem(ledger.store, run)
        if problem.players == 1:
            raise CommandError(f"{run.name}: `{problem.name}` is no game. Choose a run of a game")
        opponent = _opponent(ledger, run, program)
    with open_sandbox(SandboxSettings(), screen) as sandbox:
        table = Table(problem, opponent, sandbox)
        ended = played(table, sys.stdin, screen.say, person=int(second))
    screen.answer({"run": run.name, "program": opponent.id, **ended})


def _opponent(ledger: Ledger, run: Run, prefix: str | None) -> Program:
    """Returns the program that is played against.

    Raises:
      CommandError: There is none of that name, or more than one.
    """
    with ledger.store.begin() as tx:
        if prefix is None:
            best = tx.history.best(run.id)
            ids = [best.program] if best else []
        else:
            ids = list(tx.programs.named(run.id, prefix))
        if len(ids) != 1 or ids[0] is None:
            found = "more than one program begins" if ids else "no program begins"
            what = f"{found} with {prefix}" if prefix else "no program has been measured yet"
            raise CommandError(f"{run.name}: {what}. `evoq export-programs` lists all of them")
        return tx.programs.get([ids[0]])[ids[0]]


@dataclass(frozen=True, slots=True)
class Table:
    """A game between a person and a program, whose referee is the problem's evaluator."""

    problem: Problem
    program: Program
    sandbox: Sandbox

    def asked(self, what: str, moves: Iterable[str]) -> dict[str, Any]:
        """Returns the position after some moves: `position`, `legal`, `over`, and the `move` made.

        Args:
          what: "show", or "move" to have the program move.
          moves: From the beginning of the game.

        Raises:
          CommandError: The program failed, or the evaluator shows no positions.
        """
        job = self.problem.prepare(
            self.problem.trials_of(self.program.id, self.problem.stages[0])[0],
            {self.program.id: self.program},
        )
        outcome = self.sandbox.run(replace(job, function=TURN, cases=(what, *moves)))
        if outcome.failure is not None or outcome.result is None:
            failure = outcome.failure
            detail = f"{failure.kind.value}: {failure.shown}" if failure else "no result"
            raise CommandError(f"the program lost: {detail}")
        return dict(json.loads(outcome.result)["metrics"])


def played(
    table: Table, answers: Iterable[str], say: Callable[[str], None], *, person: int
) -> dict[str, Any]:
    """Plays a game to its end, or to the end of the answers; returns its moves and its ending.

    Args:
      table: Referee and program.
      answers: What the person writes, a move each.
      say: Shows a text to the person.
      person: The seat of the person, 0 for the first.
    """
    moves: list[str] = []
    lines = iter(answers)
    shown = table.asked("show", moves)
    while not shown["over"]:
        if len(moves) % 2 != person:
            shown = table.asked("move", moves)
            if not shown["move"]:
                break
            moves.append(shown["move"])
            say(f"the program plays {shown['move']}")
            continue
        say(f"{shown['position']}\nyour move, one of {' '.join(shown['legal'])}:")
        move = next((line.strip() for line in lines), None)
        if move is None:
            return {"moves": moves, "over": "the person left"}
        if move not in shown["legal"]:
            say(f"{move!r} is no legal move")
            continue
        moves.append(move)
        shown = table.asked("show", moves)
    say(f"{shown['position']}\n{shown['over']}")
    return {"moves": moves, "over": shown["over"]}
