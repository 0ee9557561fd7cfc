"""How the champion of a game does after some generations: `python -m benchmarks.champion`.

Real: the search of `evoq run examples/connect_four --no-model --reproducible` with its ledger, its
recipe, its operators and the example's evaluator.  SIMULATED: the sandbox; programs are played in
this process, because they come from the seeds and from blind edits only.

The champion then plays games that the search has never seen: from positions after `--opening`
random moves, each of them twice, sides swapped, against every seed of the example and against its
house player, a search of three plies.  A program that raises, or moves illegally, loses.  The
interval is of the mean over the openings, whose two games are one observation (95 %, normal).
"""

import argparse
import importlib.util
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
from typing import Any, TypeAlias

from app.adapters.problems import load
from app.adapters.queue.inline import InlineExecutor
from app.adapters.store import schema
from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.sql import SqlStore
from app.adapters.tuning.cma import ask
from app.cli.plan import SettingLayers, plan_run
from app.cli.session import step_table
from app.config.layers import from_assignments
from app.domain.evaluation import Failure, FailureKind
from app.domain.operators import operators
from app.domain.problem import Evaluator, Job, Outcome
from app.domain.run import Run, RunState
from app.embedded.postgres import EmbeddedPostgres
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, LanguageModel, Protection, Stop

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "connect_four"
SEED_OF_OPENINGS = 20_261_124
NORMAL_95 = 1.96
SECONDS = 20.0
"""Of one job: a program whose loop does not end fails."""

Board: TypeAlias = list[list[int]]
Player: TypeAlias = Callable[[Board, int], int]


class Direct:
    """A sandbox that calls the evaluator in this process; a job may take `SECONDS` in all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._evaluator = module("evaluator")

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        paths = [self._folder / f"player{seat}.py" for seat in range(len(job.programs))]
        for path, (_, source) in zip(paths, job.programs, strict=True):
            path.write_bytes(source)
        moves: list[str] = []
        random.seed(job.seed)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
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
            signal.setitimer(signal.ITIMER_REAL, 0.0)
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
    store: SqlStore, folder: Path, seed: int, iterations: int, settings: Mapping[str, Any]
) -> str:
    """Returns the source of the champion of one search."""
    problem, executor = load([EXAMPLE], strict=True), InlineExecutor()
    given = {"budget.proposals": iterations, "search.seed": seed, **settings}
    layer = from_assignments(f"{key}={json.dumps(value)}" for key, value in given.items())
    plan = plan_run(problem, SettingLayers((layer,)), local=True, reproducible=True, no_model=True)
    ctx = Context(
        store=store,
        model=_nobody,
        sandbox=Direct(folder),
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


def module(name: str) -> ModuleType:
    """Imports a file of the example, which is this repository's own code."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def program(source: str, rules: ModuleType) -> Player:
    """Returns a program as a player."""
    names: dict[str, Any] = {}
    exec(compile(source, "program", "exec"), names)

    def play(board: Board, side: int) -> int:
        return names["move"](rules.seen_by(board, side), 20.0)  # type: ignore[no-any-return]

    return play


def openings(count: int, plies: int, rules: ModuleType) -> Iterator[Board]:
    """Yields positions after random legal moves, in which nobody has won."""
    rng = Random(SEED_OF_OPENINGS)
    while count:
        board, won = rules.empty(), False
        for ply in range(plies):
            column = rng.choice(rules.legal(board))
            board[column].append(ply % 2)
            won = won or rules.wins(board, column)
        if not won:
            count -= 1
            yield board


def points(players: Sequence[Player], opening: Board, rules: ModuleType) -> float:
    """Returns the points of the first player in a game from a position."""
    board = [list(column) for column in opening]
    ply = sum(map(len, board))
    while rules.legal(board):
        side = ply % 2
        try:
            column = players[side](board, side)
            legal = type(column) is int and column in rules.legal(board)
        except Exception:
            legal = False
        if not legal:
            return float(side == 1)
        board[column].append(side)
        if rules.wins(board, column):
            return float(side == 0)
        ply += 1
    return 0.5


def measured(
    one: Player, other: Player, starts: Sequence[Board], rules: ModuleType
) -> dict[str, float]:
    """Returns the share of the points of `one`, with its interval."""
    shares = [
        (points((one, other), start, rules) + 1.0 - points((other, one), start, rules)) / 2
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
    signal.signal(signal.SIGALRM, _overdue)
    rules = module("rules")
    house = module("house").search_player(3)
    seeds = {
        path.stem: program(path.read_text(), rules) for path in sorted(EXAMPLE.glob("seeds/*.py"))
    }
    opponents: dict[str, Player] = {**seeds, "house": house}
    starts = list(openings(options.openings, options.opening, rules))

    def row(player: Player) -> dict[str, Any]:
        return {name: measured(player, other, starts, rules) for name, other in opponents.items()}

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
            source = searched(store, folder, number, options.iterations, settings)
            seconds = round(time.monotonic() - began, 1)
            about = {"seed": number, "seconds": seconds, "load": round(os.getloadavg()[0], 1)}
            found = {**about, **row(program(source, rules)), "source": source}
            print(json.dumps({"player": "champion", **found}), flush=True)
        store.close()
        postgres.stop()


if __name__ == "__main__":
    main()
