"""How the champion of a game does after some generations: `python -m benchmarks.champion`.

Real: the search of `evoq run examples/connect_four --no-model --reproducible`, or with `--game
chess` of `examples/chess`, with its ledger, its recipe, its operators and the example's evaluator.
Chess needs the package `chess` (GPL-3.0) on the path, which Evoqueue does not install.

SIMULATED: the sandbox; programs are played in this process, because they come from the seeds and
from blind edits only.

The champion then plays games that the search has never seen: from positions after `--opening`
random moves, each of them twice, sides swapped, against every seed of the example and against its
house player, a search of three plies, in chess of one.  A program that raises, or moves illegally,
loses.  The interval is of the mean over the openings, whose two games are one observation (95 %,
normal).
"""

import argparse
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from app.adapters.problems import load
from app.adapters.queue.inline import InlineExecutor
from app.adapters.store import schema
from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.sql import SqlStore
from app.adapters.tuning.cma import ask
from app.client.plan import SettingLayers, plan_run
from app.client.session import step_table
from app.config.layers import from_assignments
from app.domain.evaluation import Failure, FailureKind
from app.domain.operators import operators
from app.domain.problem import Evaluator, Job, Outcome
from app.domain.run import Run, RunState
from app.embedded.postgres import EmbeddedPostgres
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, LanguageModel, Protection, Stop

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SEED_OF_OPENINGS = 20_261_124
NORMAL_95 = 1.96
SECONDS = 60.0
"""Of processor time of one job: a program whose loop does not end fails."""

State: TypeAlias = Any
"""A position, as the game has it; never changed."""
Player: TypeAlias = Callable[[State], Any]
"""Returns a move of the side that is to move."""


class Game(Protocol):
    """The rules of a game, for programs that are played in this process."""

    name: str

    def start(self) -> State: ...
    def moves(self, state: State) -> list[Any]: ...
    def after(self, state: State, move: Any) -> State: ...

    def side(self, state: State) -> int:
        """Returns who is to move: 0 or 1."""
        ...

    def score(self, state: State) -> float | None:
        """Returns the points of the first player; None while the game goes on."""
        ...

    def ask(self, function: Callable[..., Any], state: State) -> Any:
        """Returns what a program's `move` answers."""
        ...

    def house(self) -> Player: ...


class ConnectFour:
    """A position is the board, and its last column; None at the start."""

    name = "connect_four"

    def __init__(self) -> None:
        self._rules = module(self.name, "rules")

    def start(self) -> State:
        return self._rules.empty(), None

    def moves(self, state: State) -> list[Any]:
        found: list[Any] = self._rules.legal(state[0])
        return found

    def after(self, state: State, move: Any) -> State:
        board = [list(column) for column in state[0]]
        board[move].append(self.side(state))
        return board, move

    def side(self, state: State) -> int:
        return sum(map(len, state[0])) % 2

    def score(self, state: State) -> float | None:
        board, last = state
        if last is not None and self._rules.wins(board, last):
            return float(self.side(state) == 1)
        return None if self._rules.legal(board) else 0.5

    def ask(self, function: Callable[..., Any], state: State) -> Any:
        return function(self._rules.seen_by(state[0], self.side(state)), 20.0)

    def house(self) -> Player:
        search = module(self.name, "house").search_player(3)
        return lambda state: search(state[0], self.side(state))


class Chess:
    """A position is a board of the package `chess`, with the moves that led to it."""

    name = "chess"

    def __init__(self) -> None:
        self._rules = module(self.name, "rules")

    def start(self) -> State:
        return self._rules.chess.Board()

    def moves(self, state: State) -> list[Any]:
        found: list[Any] = self._rules.moves(state)
        return found

    def after(self, state: State, move: Any) -> State:
        board = state.copy()
        board.push_uci(move)
        return board

    def side(self, state: State) -> int:
        return int(state.ply() % 2)

    def score(self, state: State) -> float | None:
        ended = self._rules.ending(state)
        return None if ended is None else float(ended[0])

    def ask(self, function: Callable[..., Any], state: State) -> Any:
        return function(state.fen(), self._rules.moves(state), 20.0)

    def house(self) -> Player:
        search: Player = module(self.name, "house").search_player(1, seed=1)
        return search


GAMES: dict[str, Callable[[], Game]] = {"connect_four": ConnectFour, "chess": Chess}


class Direct:
    """A sandbox that calls the evaluator in this process; a job may take `SECONDS` in all."""

    def __init__(self, game: Game, folder: Path) -> None:
        self._folder = folder
        self._evaluator = module(game.name, "evaluator")

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        paths = [self._folder / f"player{seat}.py" for seat in range(len(job.programs))]
        for path, (_, source) in zip(paths, job.programs, strict=True):
            path.write_bytes(source)
        moves: list[str] = []
        random.seed(job.seed)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            found = getattr(self._evaluator, job.function)(*map(str, paths))
            while isinstance(found, Iterator):
                try:
                    moves.append(next(found))
                except StopIteration as end:
                    found = {**end.value, "moves": moves}
        except Exception as error:
            seat = _culprit(error, [str(path) for path in paths])
            return Outcome(None, Failure(FailureKind.RUNTIME, repr(error)[:200]), culprit=seat)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        failed = found.pop("error", None)
        if failed is not None:
            return Outcome(None, Failure(FailureKind.RUNTIME, str(failed)[:200]))
        return Outcome(json.dumps({"metrics": found, "artifacts": {}}).encode(), None)

    def prepare(self, evaluator: Evaluator) -> None: ...

    def surroundings(self, evaluator: Evaluator) -> str:
        return "this process"

    def protections(self) -> list[Protection]:
        return []

    def close(self) -> None: ...


def _culprit(error: BaseException, paths: Sequence[str]) -> int | None:
    """Returns the seat of the last program in a traceback."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    seats = [paths.index(file) for file in files if file in paths]
    return seats[-1] if seats else None


def _overdue(number: int, frame: object) -> None:
    raise TimeoutError("a program takes too long")


def searched(
    store: SqlStore,
    game: Game,
    folder: Path,
    seed: int,
    iterations: int,
    settings: Mapping[str, Any],
) -> str:
    """Returns the source of the champion of one search."""
    problem, executor = load([EXAMPLES / game.name], strict=True), InlineExecutor()
    given = {"budget.proposals": iterations, "search.seed": seed, **settings}
    layer = from_assignments(f"{key}={json.dumps(value)}" for key, value in given.items())
    plan = plan_run(problem, SettingLayers((layer,)), local=True, reproducible=True, no_model=True)
    ctx = Context(
        store=store,
        model=_nobody,
        sandbox=Direct(game, folder),
        executor=executor,
        problem=lambda digest: problem,
        operators=operators(ask),
        share=GroupCommit().share,
    )
    run = lifecycle.start(ctx, problem, plan.new_run(f"champion-{seed}")).id
    state = RunState.RUNNING
    while state is RunState.RUNNING:
        executor.drain(step_table(ctx), lambda: False)
        steps.reap(ctx, run)
        steps.produce(ctx, run)
        with store.begin() as tx:
            state = tx.runs.get(run).state
    with store.begin() as tx:
        best = tx.history.best(run)
        if state is not RunState.FINISHED or best is None or best.program is None:
            raise SystemExit(f"the search with seed {seed} ended as {state}")
        return tx.programs.get([best.program])[best.program].source


def _nobody(run: Run) -> LanguageModel:
    raise AssertionError(f"run {run.id} asks a model")


def module(game: str, name: str) -> ModuleType:
    """Imports a file of an example, which is this repository's own code, and those it imports."""
    folder = str(EXAMPLES / game)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def program(source: str, game: Game) -> Player:
    """Returns a program as a player."""
    names: dict[str, Any] = {}
    exec(compile(source, "program", "exec"), names)
    return lambda state: game.ask(names["move"], state)


def openings(count: int, plies: int, game: Game) -> Iterator[State]:
    """Yields positions after random legal moves, in which the game goes on."""
    rng = Random(SEED_OF_OPENINGS)
    while count:
        state = game.start()
        for _ in range(plies):
            if game.score(state) is None:
                state = game.after(state, rng.choice(game.moves(state)))
        if game.score(state) is None:
            count -= 1
            yield state


def points(players: Sequence[Player], opening: State, game: Game) -> float:
    """Returns the points of the first player in a game from a position."""
    state = opening
    while (score := game.score(state)) is None:
        side, legal = game.side(state), game.moves(state)
        try:
            move = players[side](state)
            allowed = type(move) is type(legal[0]) and move in legal
        except Exception:
            allowed = False
        if not allowed:
            return float(side == 1)
        state = game.after(state, move)
    return score


def measured(one: Player, other: Player, starts: Sequence[State], game: Game) -> dict[str, float]:
    """Returns the share of the points of `one`, with its interval."""
    shares = [
        (points((one, other), start, game) + 1.0 - points((other, one), start, game)) / 2
        for start in starts
    ]
    half = NORMAL_95 * stdev(shares) / len(shares) ** 0.5
    mean = fmean(shares)
    return {
        "share": round(mean, 3),
        "low": round(mean - half, 3),
        "high": round(mean + half, 3),
        "games": 2 * len(shares),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--game", choices=sorted(GAMES), default="connect_four")
    parser.add_argument("--searches", type=int, default=5, help="searches")
    parser.add_argument("--first", type=int, default=1, help="seed of the first search")
    parser.add_argument("--iterations", type=int, default=80, help="proposals of a search")
    parser.add_argument("--openings", type=int, default=200, help="positions to play from")
    parser.add_argument("--opening", type=int, default=4, help="random moves before each game")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    settings = {
        key: json.loads(value) if value[:1] in "0123456789[{tf" else value
        for key, _, value in (given.partition("=") for given in options.set)
    }
    signal.signal(signal.SIGVTALRM, _overdue)
    game = GAMES[options.game]()
    found = sorted((EXAMPLES / game.name).glob("seeds/*.py"))
    seeds = {path.stem: program(path.read_text(), game) for path in found}
    opponents: dict[str, Player] = {**seeds, "house": game.house()}
    starts = list(openings(options.openings, options.opening, game))

    def row(player: Player) -> dict[str, Any]:
        return {name: measured(player, other, starts, game) for name, other in opponents.items()}

    for name, seed in seeds.items():
        print(json.dumps({"player": name, **row(seed)}), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        postgres = EmbeddedPostgres(folder / "postgres", durable=False)
        address = postgres.start()
        schema.upgrade(address)
        store = SqlStore(address)
        for number in range(options.first, options.first + options.searches):
            began = time.monotonic()
            source = searched(store, game, folder, number, options.iterations, settings)
            seconds = round(time.monotonic() - began, 1)
            about = {"seed": number, "seconds": seconds, "load": round(os.getloadavg()[0], 1)}
            result = {**about, **row(program(source, game)), "source": source}
            print(json.dumps({"player": "champion", **result}), flush=True)
        store.close()
        postgres.stop()


if __name__ == "__main__":
    main()
