"""How long a run of quick proposals takes beside a run of long trials, and alone.

    python -m benchmarks.fairness                 # an embedded stack
    python -m benchmarks.fairness --deployed      # two workers that evaluate, one that generates

Nothing is simulated: `evoq run` of two problem folders without a model, whose evaluators sleep, in
real sandboxes.  The short run is timed alone and beside the long one, in turns.  `ratio` is the
fairness figure.  `shares` are the trial seconds of two long runs that go side by side, with the
weights 1 and `--weight`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from app.adapters.store import schema
from app.bootstrap.ledger import open_store
from app.embedded.stack import EmbeddedStack
from benchmarks.stack import running_stack

PROGRAM = """\
# EVOLVE-BLOCK-START
def value():
    return 1.5 + 2.0
# EVOLVE-BLOCK-END
"""
EVALUATOR = """\
import importlib.util
import time


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    time.sleep({seconds})
    return {{"combined_score": -abs(program.value() - 10.0)}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deployed", action="store_true", help="workers by hand, not embedded")
    parser.add_argument("--places", type=int, default=4, help="places of all workers together")
    parser.add_argument("--long-seconds", type=float, default=5.0)
    parser.add_argument("--short-seconds", type=float, default=0.0)
    parser.add_argument("--proposals", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--weight", type=float, default=2.0, help="0: no two long runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evoq-fairness-") as name, ExitStack() as stack:
        folder = Path(name)
        long = problem(folder / "long", options.long_seconds)
        short = problem(folder / "short", options.short_seconds)
        database_url = stack.enter_context(servers(folder, options))
        alone, beside = [], []
        # The first run boots the sandboxes.
        run(short, options.proposals)
        for turn in range(options.turns):
            alone.append(run(short, options.proposals))
            with in_the_background(long, f"long-{turn}"):
                time.sleep(2 * options.long_seconds + 3)
                beside.append(run(short, options.proposals))
        shares = side_by_side(long, database_url, options) if options.weight else {}
        print(
            json.dumps(
                {
                    "settings": vars(options),
                    "cores": os.cpu_count(),
                    "load": os.getloadavg()[0],
                    "alone_seconds": alone,
                    "beside_seconds": beside,
                    "ratio": round(median(beside) / median(alone), 2),
                    "shares": shares,
                },
                indent=2,
            )
        )


def problem(folder: Path, seconds: float) -> Path:
    folder.mkdir()
    (folder / "initial_program.py").write_text(PROGRAM)
    (folder / "evaluator.py").write_text(EVALUATOR.format(seconds=seconds))
    return folder


@contextmanager
def servers(folder: Path, options: argparse.Namespace) -> Iterator[str]:
    """Starts a stack, embedded or of workers by hand; yields the address of its ledger."""
    backend = {"EVOQ_SANDBOX__BACKEND": "process"}
    if options.deployed:
        each = {"EVOQ_EVALUATE_CONCURRENCY": str(options.places // 2), **backend}
        with running_stack(["gpu", "cpu", "cpu", "control"], each, application="app") as stack:
            yield stack.database_url
        return
    each = {"EVOQ_EVALUATE_CONCURRENCY": str(options.places), **backend}
    os.environ.update({"EVOQ_HOME": str(folder / "home"), **each})
    embedded = EmbeddedStack(folder / "home", schema.upgrade)
    try:
        yield embedded.start().database_url
    finally:
        embedded.stop()


def command(folder: Path, *words: str) -> list[str]:
    out = folder.parent / "out" / str(time.monotonic_ns())
    start = "from app.cli.application import main; raise SystemExit(main())"
    return [sys.executable, "-c", start, "run", str(folder), *words, f"--out={out}"]


def run(folder: Path, proposals: int) -> float:
    """Runs to the end; returns the seconds from the run's creation to its last event."""
    words = command(folder, f"--iterations={proposals}", "--json")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout)["wall_seconds"])


@contextmanager
def in_the_background(folder: Path, name: str, *words: str) -> Iterator[None]:
    """Keeps a run without end going."""
    words = (f"--name={name}", "--iterations=100000", *words)
    process = subprocess.Popen(
        command(folder, *words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def side_by_side(folder: Path, database_url: str, options: argparse.Namespace) -> dict[str, float]:
    """Returns the trial seconds of two runs within ten trials' time, by weight."""
    weights = {"one": 1.0, "other": options.weight}
    with ExitStack() as stack:
        for name, weight in weights.items():
            words = (f"--set=queue.weight={weight}",)
            stack.enter_context(in_the_background(folder, name, *words))
        time.sleep(2 * options.long_seconds + 3)
        before = spent(database_url, list(weights))
        time.sleep(10 * options.long_seconds)
        after = spent(database_url, list(weights))
    return {f"weight {weights[name]:g}": round(after[name] - before[name], 1) for name in weights}


def spent(database_url: str, names: list[str]) -> dict[str, float]:
    store = open_store(database_url, connections=1)
    try:
        with store.begin() as tx:
            runs = {name: tx.runs.named(name) for name in names}
            return {
                name: sum(
                    settled.wall_seconds for settled in tx.history.settled(run.id, limit=9999)
                )
                for name, run in runs.items()
                if run is not None
            }
    finally:
        store.close()


if __name__ == "__main__":
    main()
