"""What a proposal costs on the real path: a model over HTTP, a guarded sandbox, the whole stack.

    python -m benchmarks.real_path                          # a program of one line
    python -m benchmarks.real_path --bytes 6000             # a program of 6 KB
    python -m benchmarks.real_path --openevolve PROGRAM --turns 3   # in turns with it

Real: Postgres, Valkey, Celery workers and beat as processes, prompts, replies, the guarded process
sandbox.  Simulated: the model (`evoq mock-llm`, which edits the program in its prompt, in a
separate process on the same machine).  Measured from 15 % of the run on until 95 %, from /proc: a
process that has ended counts with its parent.  Prints one JSON document for each run.

OpenEvolve has an environment of its own, see `benchmarks.openevolve`.  It runs the same problem
with the same simulated model, as many evaluations at once, and no sandbox.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import yaml

from app.adapters.problems.loading import load
from app.client.plan import plan_run
from app.client.setting_layers import read_layers
from app.domain.run import Run, RunState
from app.engine import lifecycle
from benchmarks.mock_server import editing_model
from benchmarks.openevolve import CHILD
from benchmarks.stack import ProcessCosts, Stack, running_stack

PROGRAM = """# EVOLVE-BLOCK-START
def solve(x):
    return x * 0.5 + 1.25
# EVOLVE-BLOCK-END
"""
HELPER = """
def helper_{n}(values, limit={n}.5):
    total = 0.0
    for index, value in enumerate(values):
        if value > limit:
            total += value * 0.75 - index * 1.5
        else:
            total -= (limit - value) ** 2
    return total
"""
EVALUATOR = """import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    error = sum(abs(module.solve(x) - (3.1 * x - 2.0)) for x in range(8))
    return {"combined_score": -float(error)}
"""
SANDBOXES = "sandboxes"


@dataclass(frozen=True, slots=True)
class Mark:
    """The totals of a stack at one moment; processor seconds by part."""

    at: float
    settled: int
    seconds: dict[str, float]
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of commits, of replies of the model and of trials."""


def main() -> None:
    options = _arguments()
    for _ in range(options.turns):
        if options.openevolve:
            print(json.dumps(_openevolve(options), indent=2), flush=True)
        print(json.dumps(_evoqueue(options), indent=2), flush=True)


def _evoqueue(options: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="evoq-bench-") as folder:
        problem = _problem(Path(folder) / "problem", options.bytes)
        environment = {
            "EVOQ_SANDBOX__BACKEND": "process",
            "EVOQ_GENERATE_CONCURRENCY": str(2 * options.in_flight),
        }
        with (
            editing_model(options.model_seconds, options.in_flight) as base_url,
            running_stack(["gpu", "cpu,control"], environment, application="app") as stack,
        ):
            run = _start(stack, problem, base_url, options)
            first = _reached(stack, run, int(0.15 * options.proposals))
            last = _reached(stack, run, int(0.95 * options.proposals))
            memory = stack.spent.memory_mib()
    what = "Evoqueue: whole stack, guarded process sandboxes"
    settled = last.settled - first.settled
    each = {name: round((last.counts[name] - n) / settled, 2) for name, n in first.counts.items()}
    return {**_report(what, options, first, last, memory), "of a proposal": each}


def _openevolve(options: argparse.Namespace) -> dict[str, object]:
    """Returns what a run of OpenEvolve takes, with as many evaluations at once and no sandbox."""
    with (
        tempfile.TemporaryDirectory(prefix="openevolve-") as name,
        editing_model(options.model_seconds, options.in_flight) as base_url,
    ):
        out = Path(name)
        problem = _problem(out / "problem", options.bytes)
        config = {
            "max_iterations": options.proposals,
            "checkpoint_interval": options.proposals,
            "random_seed": 1,
            "llm": {"api_base": base_url, "api_key": "none", "models": [{"name": "mock"}]},
            "evaluator": {"parallel_evaluations": options.in_flight, "cascade_evaluation": False},
        }
        (out / "config.yaml").write_text(yaml.safe_dump(config))
        command = [
            options.openevolve, problem / "initial_program.py", problem / "evaluator.py",
            "--config", out / "config.yaml", "--output", out,
        ]  # fmt: skip
        environment = {"PATH": "/usr/bin:/bin"}
        with (
            (out / "printed").open("wb") as printed,
            subprocess.Popen(
                [*map(str, command)], stdout=printed, stderr=subprocess.STDOUT, env=environment
            ) as process,
        ):
            first = _logged(process, out, int(0.15 * options.proposals))
            last = _logged(process, out, int(0.95 * options.proposals))
            memory = ProcessCosts().memory_mib()
            process.wait()
    return _report("OpenEvolve: no sandbox", options, first, last, memory)


def _logged(process: "subprocess.Popen[bytes]", out: Path, settled: int) -> Mark:
    """Returns the totals once OpenEvolve has logged so many children."""
    while True:
        now = len(CHILD.findall((out / "printed").read_text()))
        if now >= settled:
            return Mark(time.monotonic(), now, _seconds())
        if process.poll() is not None:
            raise SystemExit(f"OpenEvolve ended: {(out / 'printed').read_text()[-2000:]}")
        time.sleep(0.5)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proposals", type=int, default=1500)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--model-seconds", type=float, default=0.5)
    parser.add_argument("--bytes", type=int, default=0, help="least length of the program")
    parser.add_argument("--operators", default="{rewrite: 1}", help="the mix of forms")
    parser.add_argument("--openevolve", metavar="PROGRAM", help="path of OpenEvolve's command")
    parser.add_argument("--turns", type=int, default=1)
    return parser.parse_args()


def _problem(folder: Path, length: int) -> Path:
    """Writes a problem whose program has at least so many bytes, and returns its folder."""
    folder.mkdir()
    program, n = PROGRAM, 0
    while len(program) < length:
        program += HELPER.format(n=n)
        n += 1
    (folder / "initial_program.py").write_text(program)
    (folder / "evaluator.py").write_text(EVALUATOR)
    return folder


def _start(stack: Stack, folder: Path, base_url: str, options: argparse.Namespace) -> Run:
    problem = load([folder])
    assignments = [
        "llm.model=mock",
        f"llm.base_url={base_url}",
        f"search.operators={options.operators}",
        f"llm.target_in_flight={options.in_flight}",
        f"queue.generating={options.in_flight + 8}",
        f"queue.evaluating={options.in_flight}",
    ]
    budget = {"budget.proposals": options.proposals, "search.seed": 1}
    layers = read_layers(assignments, None, budget)
    return lifecycle.start(
        stack.ctx, problem, plan_run(problem, layers, local=False).new_run("real-path")
    )


def _reached(stack: Stack, run: Run, settled: int) -> Mark:
    """Returns the totals once so many proposals have settled."""
    while True:
        with stack.store.begin() as tx:
            current = tx.runs.get(run.id)
            now = current.proposals - tx.proposals.backlog(run.id).unsettled
        if now >= settled:
            return Mark(time.monotonic(), now, _seconds(), _counts(stack))
        if current.state is not RunState.RUNNING:
            raise SystemExit(f"the run is {current.state.value}: {current.reason}")
        time.sleep(0.5)


def _counts(stack: Stack) -> dict[str, int]:
    address = stack.database_url.replace("+psycopg", "")
    queries = {
        "commits": "SELECT sum(xact_commit)::bigint FROM pg_stat_database",
        "replies": "SELECT count(*) FROM completions",
        "trials": "SELECT count(*) FROM trials",
    }
    with psycopg.connect(address, autocommit=True) as connection:
        found = {name: connection.execute(query).fetchall() for name, query in queries.items()}
    return {name: int(n) for name, [(n,)] in found.items()}


def _seconds() -> dict[str, float]:
    """Returns processor seconds by part; what a worker's ended children took is the sandboxes'."""
    seconds: defaultdict[str, float] = defaultdict(float)
    parts: dict[int, str] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            times, line, parent = process.cpu_times(), process.cmdline(), process.ppid()
            name = process.name()
        except psutil.NoSuchProcess:
            continue
        ended = times.children_user + times.children_system
        own = times.user + times.system
        if "-Q" in line:
            parts[process.pid] = SANDBOXES
            seconds[f"worker {line[line.index('-Q') + 1]}"] += own
            seconds[SANDBOXES] += ended
            continue
        part = parts.get(parent)
        if part is None:
            known = {"mock-llm": "mock-llm", "beat": "beat"}
            part = next((part for word, part in known.items() if word in line), name)
        parts[process.pid] = part
        seconds[part] += own + ended
    return seconds


def _report(
    what: str, options: argparse.Namespace, first: Mark, last: Mark, memory: float
) -> dict[str, object]:
    n = last.settled - first.settled
    by_part = {
        part: round(1000 * (last.seconds[part] - first.seconds[part]) / n, 2)
        for part in sorted(last.seconds)
    }
    spent = sum(ms for part, ms in by_part.items() if part != "mock-llm")
    return {
        "what": f"{what}; the model is SIMULATED (evoq mock-llm)",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "settings": vars(options),
        "proposals": n,
        "per_second": round(n / (last.at - first.at), 1),
        "cpu_ms": {**by_part, "all but the model": round(spent, 2)},
        "memory_mib": round(memory),
    }


if __name__ == "__main__":
    main()
