"""`evoq play`: a person plays against a program of a run, in the terminal."""

import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from app.cli.options import Debug, Json, RunName
from app.cli.output import Screen
from app.client.measuring import open_sandbox
from app.client.notes import CommandError
from app.client.target import Ledger, open_run, stored_problem
from app.config.settings import SandboxSettings
from app.domain.program import Program
from app.domain.run import Run
from app.engine.exhibition import Exhibition, Forfeit


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
    screen = Screen(json=as_json)
    with open_run(name) as (ledger, run):
        problem = stored_problem(ledger.store, run)
        if problem.players == 1:
            raise CommandError(f"{run.name}: `{problem.name}` is no game. Choose a run of a game")
        opponent = _opponent(ledger, run, program)
    with open_sandbox(SandboxSettings(), screen) as sandbox:
        game = Exhibition(problem, opponent, sandbox)
        try:
            ended = play_to_end(game, sys.stdin, screen.say, person=int(second))
        except Forfeit as forfeit:
            raise CommandError(str(forfeit)) from forfeit
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
            if prefix is None:
                raise CommandError(
                    f"{run.name}: no program has been measured yet. Wait for one, or let the run "
                    f"go on with `evoq resume {run.name}`"
                )
            found = "more than one program begins" if ids else "no program begins"
            raise CommandError(
                f"{run.name}: {found} with {prefix}. `evoq metrics {run.name}` lists them"
            )
        return tx.programs.get([ids[0]])[ids[0]]


def play_to_end(
    game: Exhibition, answers: Iterable[str], say: Callable[[str], None], *, person: int
) -> dict[str, object]:
    """Plays a game to its end, or to the end of the answers; returns its moves and its ending.

    Args:
      game: Referee and program.
      answers: What the person writes, a move each.
      say: Shows a text to the person.
      person: The seat of the person, 0 for the first.
    """
    moves: list[str] = []
    lines = iter(answers)
    shown = game.shown(moves)
    while not shown.over:
        if len(moves) % 2 != person:
            shown = game.answered(moves)
            if not shown.move:
                break
            moves.append(shown.move)
            say(f"the program plays {shown.move}")
            continue
        say(f"{shown.text}\nyour move, one of {' '.join(shown.legal)}:")
        move = next((line.strip() for line in lines), None)
        if move is None:
            return {"moves": moves, "over": "the person left"}
        if move not in shown.legal:
            say(f"{move!r} is no legal move")
            continue
        moves.append(move)
        shown = game.shown(moves)
    say(f"{shown.text}\n{shown.over}")
    return {"moves": moves, "over": shown.over}
