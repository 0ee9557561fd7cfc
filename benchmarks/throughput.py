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
import time
from dataclasses import asdict, dataclass
from statistics import median

from app.config.settings import QueueSettings, RunSettings, SearchSettings
from app.domain.run import RunState
from app.domain.search.back_pressure import InFlightLimits
from benchmarks.stack import Stack, begin, deployed_stack, running_stack


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
    simulated = {
        "SIMULATED_MODEL_SECONDS": str(told.model_seconds),
        "SIMULATED_EVALUATION_SECONDS": str(told.evaluation_seconds),
        "SIMULATED_MODEL_SLOTS": str(told.in_flight),
        "EVOQ_GENERATE_CONCURRENCY": str(told.threads or told.in_flight),
    }
    with deployed_stack() if told.deployed else running_stack(told.workers, simulated) as stack:
        windows = _measure(stack, told)
    print(json.dumps(_summary(told, stack, windows), indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--proposals", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--threads", type=int, help="of the worker that generates")
    parser.add_argument("--buffer", type=int, help="planned proposals; more than are in flight")
    parser.add_argument("--window", type=int, default=500, help="proposals per measurement")
    parser.add_argument("--model-seconds", type=float, default=0.0)
    parser.add_argument("--evaluation-seconds", type=float, default=0.0)
    parser.add_argument("--workers", nargs="+", default=["gpu", "cpu,control"])
    parser.add_argument(
        "--deployed", action="store_true", help="the stack runs already: see benchmarks.deployed"
    )
    return parser.parse_args()


def _measure(stack: Stack, told: argparse.Namespace) -> list[Window]:
    ctx, spent_so_far = stack.ctx, stack.spent.cpu_seconds
    limits = InFlightLimits(told.buffer or told.in_flight, told.in_flight)
    queue = QueueSettings(generating=limits.generating, evaluating=limits.evaluating)
    settings = RunSettings(search=SearchSettings(seed=1), queue=queue)
    run = begin(
        stack, name="throughput", settings=settings, proposals=told.proposals, limits=limits
    )
    windows: list[Window] = []
    mark, before, cpu = time.monotonic(), 0, spent_so_far()
    deadline = time.monotonic() + 3600
    while time.monotonic() < deadline:
        time.sleep(0.2)
        with ctx.store.begin() as tx:
            known = tx.runs.get(run.id)
            settled = known.proposals - tx.proposals.backlog(run.id).unsettled
        over = known.state is not RunState.RUNNING
        if settled - before >= told.window or over:
            now, spent = time.monotonic(), spent_so_far()
            if settled > before:
                n = settled - before
                cost = 1000 * (spent - cpu) / n
                windows.append(Window(settled, n / (now - mark), cost, stack.spent.memory_mib()))
            mark, before, cpu = now, settled, spent
        if over:
            if known.state is not RunState.FINISHED:
                raise SystemExit(f"the run ended as {known.state}: {known.reason}")
            return windows
    raise SystemExit(f"only {before} proposals settled in an hour")


def _summary(told: argparse.Namespace, stack: Stack, windows: list[Window]) -> dict[str, object]:
    steady = windows[1:-1] or windows
    return {
        "what": "whole stack; model and evaluator are SIMULATED",
        "cores": os.cpu_count(),
        "settings": vars(told),
        "per_second_median": round(median(w.per_second for w in steady), 1),
        "per_second_best": round(max(w.per_second for w in steady), 1),
        "cpu_ms_per_proposal_median": round(median(w.cpu_ms for w in steady), 2),
        "memory_mib_peak": round(max(w.memory_mib for w in windows), 1),
        "cpu_seconds_by_part": stack.spent.by_part(),
        "windows": [asdict(w) for w in windows],
    }


if __name__ == "__main__":
    main()
