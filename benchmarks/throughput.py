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
class ThroughputWindow:
    """A section of the run.

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
    options = _arguments()
    simulated = {
        "SIMULATED_MODEL_SECONDS": str(options.model_seconds),
        "SIMULATED_EVALUATION_SECONDS": str(options.evaluation_seconds),
        "SIMULATED_MODEL_SLOTS": str(options.in_flight),
        "EVOQ_GENERATE_CONCURRENCY": str(options.threads or options.in_flight),
    }
    with (
        deployed_stack() if options.deployed else running_stack(options.workers, simulated) as stack
    ):
        windows = _measure(stack, options)
    print(json.dumps(_summary(options, stack, windows), indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--proposals", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--threads", type=int, help="threads of the worker that generates")
    parser.add_argument("--buffer", type=int, help="planned proposals; default: --in-flight")
    parser.add_argument("--window", type=int, default=500, help="proposals per measurement")
    parser.add_argument("--model-seconds", type=float, default=0.0)
    parser.add_argument("--evaluation-seconds", type=float, default=0.0)
    parser.add_argument("--workers", nargs="+", default=["gpu", "cpu,control"])
    parser.add_argument(
        "--deployed", action="store_true", help="measure a running stack: see benchmarks.deployed"
    )
    return parser.parse_args()


def _measure(stack: Stack, options: argparse.Namespace) -> list[ThroughputWindow]:
    ctx, spent_so_far = stack.ctx, stack.spent.cpu_seconds
    limits = InFlightLimits(options.buffer or options.in_flight, options.in_flight)
    queue = QueueSettings(generating=limits.generating, evaluating=limits.evaluating)
    settings = RunSettings(search=SearchSettings(seed=1), queue=queue)
    run = begin(
        stack, name="throughput", settings=settings, proposals=options.proposals, limits=limits
    )
    windows: list[ThroughputWindow] = []
    mark, before, cpu = time.monotonic(), 0, spent_so_far()
    deadline = time.monotonic() + 3600
    while time.monotonic() < deadline:
        time.sleep(0.2)
        with ctx.store.begin() as tx:
            current = tx.runs.get(run.id)
            settled = current.proposals - tx.proposals.backlog(run.id).unsettled
        over = current.state is not RunState.RUNNING
        if settled - before >= options.window or over:
            now, spent = time.monotonic(), spent_so_far()
            if settled > before:
                n = settled - before
                cost = 1000 * (spent - cpu) / n
                windows.append(
                    ThroughputWindow(settled, n / (now - mark), cost, stack.spent.memory_mib())
                )
            mark, before, cpu = now, settled, spent
        if over:
            if current.state is not RunState.FINISHED:
                raise SystemExit(f"the run ended as {current.state}: {current.reason}")
            return windows
    raise SystemExit(f"only {before} proposals settled in an hour")


def _summary(
    options: argparse.Namespace, stack: Stack, windows: list[ThroughputWindow]
) -> dict[str, object]:
    steady = windows[1:-1] or windows
    return {
        "what": "whole stack; model and evaluator are SIMULATED",
        "cores": os.cpu_count(),
        "settings": vars(options),
        "per_second_median": round(median(w.per_second for w in steady), 1),
        "per_second_best": round(max(w.per_second for w in steady), 1),
        "cpu_ms_per_proposal_median": round(median(w.cpu_ms for w in steady), 2),
        "memory_mib_peak": round(max(w.memory_mib for w in windows), 1),
        "cpu_seconds_by_part": stack.spent.by_part(),
        "windows": [asdict(w) for w in windows],
    }


if __name__ == "__main__":
    main()
