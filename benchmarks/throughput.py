"""Proposals per second of the whole stack, against a SIMULATED model and evaluator.

    python -m benchmarks.throughput                       # both cost nothing
    python -m benchmarks.throughput --model-seconds 0.5   # 64 in flight: ideal 128/s
    python -m benchmarks.throughput --proposals 100000 --window 5000   # cost against size

Real: Postgres, Valkey, Celery workers and beat as processes, the steps, the ledger.  Simulated: the
model (a sleep) and the evaluator (a formula in the worker).  Prints one JSON document; quote ratios
and medians, the machine may be shared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from app.adapters.store import schema
from app.bootstrap import celery_executor, context, open_store
from app.domain.run import Budget, Limits, RunState
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.valkey import EmbeddedValkey
from app.engine import lifecycle
from app.engine.context import Context
from app.entries import NewRun
from app.settings import RunSettings, SearchSettings
from benchmarks.simulated import SimulatedSandbox, problem

CELERY = (sys.executable, "-m", "celery", "-A", "benchmarks.simulated")


@dataclass(frozen=True, slots=True)
class Window:
    """One stretch of the run.

    Attributes:
      settled: Proposals settled at its end.
      per_second: Rate within it.
      cpu_ms: Processor milliseconds per proposal, all processes together.
      memory_mib: Proportional set size of all processes at its end.
    """

    settled: int
    per_second: float
    cpu_ms: float
    memory_mib: float


def main() -> None:
    told = _arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evoq-bench-")))
        postgres = EmbeddedPostgres(folder / "postgres")
        url = postgres.start()
        stack.callback(postgres.stop)
        valkey = EmbeddedValkey(folder / "valkey")
        broker = valkey.start()
        stack.callback(valkey.stop)
        schema.upgrade(url)
        os.environ["EVOQ_DATABASE_URL"], os.environ["EVOQ_REDIS_URL"] = url, broker
        os.environ["SIMULATED_MODEL_SECONDS"] = str(told.model_seconds)
        os.environ["SIMULATED_EVALUATION_SECONDS"] = str(told.evaluation_seconds)
        os.environ["SIMULATED_MODEL_SLOTS"] = str(told.in_flight)
        os.environ["EVOQ_GENERATE_CONCURRENCY"] = str(told.threads or told.in_flight)
        for queues in told.workers:
            command = (*CELERY, "worker", "-Q", queues, "--without-gossip", "--without-mingle")
            stack.callback(_end, _spawn(command, folder))
        stack.callback(_end, _spawn((*CELERY, "beat"), folder))
        store = open_store(url, connections=2)
        stack.callback(store.close)
        ctx = context(store, celery_executor(), SimulatedSandbox(0), keep_leases=False)
        windows = _measure(ctx, told)
    print(json.dumps(_summary(told, windows), indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--proposals", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--threads", type=int, help="of the worker that generates")
    parser.add_argument("--buffer", type=int, help="planned proposals; more than are in flight")
    parser.add_argument("--window", type=int, default=500, help="proposals per measurement")
    parser.add_argument("--model-seconds", type=float, default=0.0)
    parser.add_argument("--evaluation-seconds", type=float, default=0.0)
    parser.add_argument("--workers", nargs="+", default=["gpu,control", "cpu"])
    return parser.parse_args()


def _spawn(command: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    log = (folder / f"{command[-1]}-{len(list(folder.iterdir()))}.log").open("wb")
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _measure(ctx: Context, told: argparse.Namespace) -> list[Window]:
    simulated = problem()
    settings = RunSettings(search=SearchSettings(seed=1))
    run = lifecycle.start(
        ctx,
        simulated,
        NewRun(
            name="throughput",
            problem=simulated.digest,
            strategy="map_elites",
            settings=settings.model_dump(mode="json"),
            operators={"rewrite": 1.0},
            axes=simulated.axes,
            seed=1,
            islands=5,
            budget=Budget(told.proposals),
            limits=Limits(told.buffer or told.in_flight, told.in_flight),
        ),
    )
    windows: list[Window] = []
    mark, before, cpu = time.monotonic(), 0, _cpu_seconds()
    deadline = time.monotonic() + 3600
    while time.monotonic() < deadline:
        time.sleep(0.2)
        with ctx.store.begin() as tx:
            known = tx.run(run.id)
            settled = known.proposals - tx.backlog(run.id).unsettled
        over = known.state is not RunState.RUNNING
        if settled - before >= told.window or over:
            now, spent = time.monotonic(), _cpu_seconds()
            if settled > before:
                n = settled - before
                cost = 1000 * (spent - cpu) / n
                windows.append(Window(settled, n / (now - mark), cost, _memory_mib()))
            mark, before, cpu = now, settled, spent
        if over:
            if known.state is not RunState.FINISHED:
                raise SystemExit(f"the run ended as {known.state}: {known.reason}")
            return windows
    raise SystemExit(f"only {before} proposals settled in an hour")


def _family() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


_spent: dict[tuple[str, int], float] = {}


def _cpu_seconds() -> float:
    """Processor seconds of every process of the stack; those that ended keep what they had."""
    for process in _family():
        try:
            times, part = process.cpu_times(), _part(process)
        except psutil.NoSuchProcess:
            continue
        _spent[part, process.pid] = times.user + times.system
    return sum(_spent.values())


def _part(process: psutil.Process) -> str:
    """Returns which part of the stack a process is: a server, or a Celery command."""
    name, line = process.name(), process.cmdline()
    if "-Q" in line:
        return f"worker {line[line.index('-Q') + 1]}"
    return "beat" if "beat" in line else name


def _parts() -> dict[str, float]:
    """Returns processor seconds by part, from start to end."""
    parts: dict[str, float] = {}
    for (part, _), seconds in _spent.items():
        parts[part] = parts.get(part, 0.0) + seconds
    return {part: round(seconds, 2) for part, seconds in sorted(parts.items())}


def _memory_mib() -> float:
    total = 0
    for process in _family():
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total / 2**20


def _summary(told: argparse.Namespace, windows: list[Window]) -> dict[str, object]:
    steady = windows[1:-1] or windows
    return {
        "what": "whole stack; model and evaluator are SIMULATED",
        "cores": os.cpu_count(),
        "settings": vars(told),
        "per_second_median": round(median(w.per_second for w in steady), 1),
        "per_second_best": round(max(w.per_second for w in steady), 1),
        "cpu_ms_per_proposal_median": round(median(w.cpu_ms for w in steady), 2),
        "memory_mib_peak": round(max(w.memory_mib for w in windows), 1),
        "cpu_seconds_by_part": _parts(),
        "windows": [asdict(w) for w in windows],
    }


if __name__ == "__main__":
    main()
