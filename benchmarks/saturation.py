"""The share of the ideal rate of model and sandboxes that the whole stack reaches; SIMULATED.

    python -m benchmarks.saturation                         # 32 x 64: 0.8 s and 2 s, 60 s; the goal is 31/s
    python -m benchmarks.saturation --in-flight 128 --evaluations 256
    python -m benchmarks.saturation --faults                # 10 % 429s, 5 % 5xx, 2 % hangs against none

Real: Postgres, Valkey, Celery workers and beat as processes, the steps, the ledger, prompts, the
product's own model adapter over HTTP.  Simulated: the model (`evoq mock-llm`, in a separate
process on the same machine) and the evaluation (a sleep instead of a sandbox).  The control is the
loop of design document 001 (`slot_loop`).  Prints one JSON document.
"""  # noqa: E501  commands are not broken

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psycopg

from app.config.models import ModelSettings
from app.config.settings import QueueSettings, RunSettings, SearchSettings
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import SMALL, InFlightLimits
from app.engine import lifecycle
from benchmarks import slot_loop
from benchmarks.mock_server import latencies, metric, simulated_model
from benchmarks.stack import Stack, begin, running_stack

FAULTS = {"--rate-429": 0.10, "--rate-5xx": 0.05, "--rate-hang": 0.02}
ENDLESS = 10_000_000


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """The ledger's totals at one moment.

    Attributes:
      evaluated: Trials with an evaluation.
      settled: Proposals, duplicates and failures included.
    """

    at: float
    evaluated: int
    settled: int
    failed: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The results of one measurement, per second where the name says so.

    Attributes:
      model_busy: Share of the model's slots in use, by its own gauge, sampled.
      model_seconds: Duration of a completion by the mock's own clock, its queue included: more than
        `--model-seconds` if it had to wait for a slot or for a processor.
      cpu_ms: Processor milliseconds per evaluated proposal, those of the mock included.
    """

    seconds: float
    evaluated_per_second: float
    settled_per_second: float
    failed: int
    duplicates: int
    model_busy: float
    model_seconds: float
    cpu_ms: float
    load: float


def main() -> None:
    options = arguments()
    print(json.dumps(_faulty(options) if options.faults else _saturated(options), indent=2))


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--in-flight", type=int, default=32, help="slots of the simulated model")
    parser.add_argument("--evaluations", type=int, default=64, help="concurrent evaluations")
    parser.add_argument("--model-seconds", type=float, default=0.8)
    parser.add_argument("--evaluation-seconds", type=float, default=2.0)
    parser.add_argument(
        "--threads", type=int, help="threads that generate; default: 1.5 times --in-flight"
    )
    parser.add_argument(
        "--cpu-threads",
        type=int,
        help="threads of each worker that evaluates; default: 1.25 times --evaluations",
    )
    parser.add_argument(
        "--buffer", type=int, help="planned proposals; default: 3 times --in-flight"
    )
    parser.add_argument(
        "--measured", action="store_true", help="let the run derive its limits in flight itself"
    )
    parser.add_argument("--workers", nargs="+", default=["gpu", "cpu,control"])
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--no-control", action="store_true")
    parser.add_argument(
        "--faults", action="store_true", help="compare runs of --proposals with and without faults"
    )
    parser.add_argument("--proposals", type=int, default=1000)
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="limit of one model call in seconds"
    )
    return parser.parse_args(words)


def _saturated(options: argparse.Namespace) -> dict[str, object]:
    ideal = min(
        options.in_flight / options.model_seconds, options.evaluations / options.evaluation_seconds
    )
    with simulated_model(options.model_seconds, options.in_flight) as base_url:
        control = None
        if not options.no_control:
            seconds = (options.evaluation_seconds, options.warm_up / 2, options.seconds)
            control = slot_loop.per_second(
                base_url, options.in_flight, options.evaluations, seconds
            )
        with running_stack(
            options.workers, environment(options, options.evaluation_seconds)
        ) as stack:
            run = start(stack, options, base_url, ENDLESS, options.timeout)
            time.sleep(options.warm_up)
            measured = _measure(stack, run, base_url, options)
            lifecycle.cancel(stack.ctx, run.id)
            parts = stack.spent.by_part()
    return {
        "what": "whole stack; model and evaluation are SIMULATED (a mock server, a sleep)",
        "cores": os.cpu_count(),
        "settings": vars(options),
        "ideal_per_second": ideal,
        "of_ideal": round(measured.evaluated_per_second / ideal, 3),
        "stack": asdict(measured),
        "document_001_per_second": control,
        "document_001_ideal": options.in_flight
        / (options.model_seconds + options.evaluation_seconds),
        "cpu_seconds_by_part": parts,
    }


def _faulty(options: argparse.Namespace) -> dict[str, object]:
    """Runs the same number of proposals with and without faults, and compares.

    Rates are those of the whole run, from its first plan to its end.  A hang occupies a slot until
    it times out: that time, as the mock server measured it, is lost for replies, and
    `capacity_left` corrects for it.  Refusals are answered at once and corrected for by nothing, as
    is time without requests.
    """
    clean, faulty = (_finished(options, faults) for faults in ({}, FAULTS))
    rates = [options.proposals / times.seconds_in_all for times in (clean, faulty)]
    left = 1 - faulty.hang_seconds / options.in_flight / faulty.seconds_in_all
    return {
        "what": "whole stack; model and evaluation are SIMULATED (a mock server, no sandbox)",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "settings": vars(options),
        "faults": FAULTS,
        "clean": asdict(clean),
        "faulty": asdict(faulty),
        "of_clean": round(rates[1] / rates[0], 3),
        "capacity_left": round(left, 3),
        "of_clean_at_same_capacity": round(rates[1] / rates[0] / left, 3),
    }


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The course of a run.

    Attributes:
      seconds_in_all: Time from its first plan to its end.
      marks: Seconds until a tenth, five tenths, nine tenths, 99 hundredths and all had settled.
      hang_seconds: Total time of hanging requests, by the mock's clock.
    """

    state: str
    reason: str
    settled: int
    failed: int
    faults_injected: float
    hang_seconds: float
    seconds_in_all: float
    marks: tuple[float, ...]


def _finished(options: argparse.Namespace, faults: dict[str, float]) -> RunTimes:
    with (
        simulated_model(options.model_seconds, options.in_flight, faults) as base_url,
        running_stack(options.workers, environment(options, 0.0)) as stack,
    ):
        run = start(stack, options, base_url, options.proposals, options.timeout)
        state, seen = run.state, [counted(stack, run)]
        while state is RunState.RUNNING:
            time.sleep(0.1)
            with stack.store.begin() as tx:
                now = tx.runs.get(run.id)
            state = now.state
            seen.append(counted(stack, run))
        injected = metric(base_url, "evoq_mock_llm_injected_faults_total")
        hung = metric(base_url, "evoq_mock_llm_hang_seconds_total")
    marks = [
        next((then.at for then in seen if then.settled >= share * options.proposals), seen[-1].at)
        for share in (0.1, 0.5, 0.9, 0.99, 1.0)
    ]
    return RunTimes(
        state=state,
        reason=now.reason,
        settled=seen[-1].settled,
        failed=seen[-1].failed,
        faults_injected=injected,
        hang_seconds=round(hung, 1),
        seconds_in_all=round(seen[-1].at - seen[0].at, 1),
        marks=tuple(round(at - seen[0].at, 1) for at in marks),
    )


def environment(options: argparse.Namespace, evaluation_seconds: float) -> dict[str, str]:
    """Returns the environment of the workers; those that evaluate share the simulated slots."""
    evaluating = sum("cpu" in queues.split(",") for queues in options.workers)
    return {
        "SIMULATED_MODEL": "settings",
        "SIMULATED_EVALUATION_SECONDS": str(evaluation_seconds),
        "SIMULATED_EVALUATION_SLOTS": str(options.evaluations // evaluating),
        "EVOQ_GENERATE_CONCURRENCY": str(options.threads or options.in_flight * 3 // 2),
        "EVOQ_EVALUATE_CONCURRENCY": str(
            options.cpu_threads or options.evaluations * 5 // 4 // evaluating
        ),
        "EVOQ_DATABASE_CONNECTIONS": "32",
    }


def start(
    stack: Stack, options: argparse.Namespace, base_url: str, proposals: int, timeout: float
) -> Run:
    model = ModelSettings(model="mock", base_url=base_url, timeout_seconds=timeout, max_tokens=400)
    limits = InFlightLimits(options.buffer or 3 * options.in_flight, 2 * options.evaluations)
    queue = QueueSettings(generating=limits.generating, evaluating=limits.evaluating)
    settings = RunSettings(
        search=SearchSettings(seed=1),
        llm=model,
        queue=QueueSettings() if options.measured else queue,
    )
    return begin(
        stack,
        name="saturation",
        settings=settings,
        proposals=proposals,
        limits=InFlightLimits(SMALL, SMALL) if options.measured else limits,
    )


def _measure(stack: Stack, run: Run, base_url: str, options: argparse.Namespace) -> SteadyState:
    before, spent = counted(stack, run), stack.spent.cpu_seconds()
    answered = [latencies(base_url)]
    running: list[float] = []
    while time.monotonic() < before.at + options.seconds:
        time.sleep(0.5)
        running.append(metric(base_url, "vllm:num_requests_running"))
    answered.append(latencies(base_url))
    (seconds_before, n_before), (seconds_after, n_after) = answered
    after, cost = counted(stack, run), stack.spent.cpu_seconds() - spent
    seconds, evaluated = after.at - before.at, after.evaluated - before.evaluated
    return SteadyState(
        seconds=round(seconds, 2),
        evaluated_per_second=round(evaluated / seconds, 2),
        settled_per_second=round((after.settled - before.settled) / seconds, 2),
        failed=after.failed - before.failed,
        duplicates=after.duplicates - before.duplicates,
        model_busy=round(sum(running) / len(running) / options.in_flight, 3),
        model_seconds=round((seconds_after - seconds_before) / max(1.0, n_after - n_before), 3),
        cpu_ms=round(1000 * cost / max(1, evaluated), 2),
        load=round(os.getloadavg()[0], 1),
    )


def counted(stack: Stack, run: Run) -> LedgerTotals:
    with psycopg.connect(stack.database_url.replace("+psycopg", "")) as connection:
        trials = "SELECT count(*) FROM trials WHERE run = %s AND evaluation IS NOT NULL"
        [evaluated] = connection.execute(trials, (run.id,)).fetchone() or (0,)
        proposals = (
            "SELECT count(settled_at), count(*) FILTER (WHERE state = 'failed'),"
            " count(*) FILTER (WHERE state = 'cut')"
            " FROM proposals WHERE run = %s AND ordinal >= 0"
        )
        counts = connection.execute(proposals, (run.id,)).fetchone() or (0, 0, 0)
    return LedgerTotals(time.monotonic(), evaluated, *counts)


if __name__ == "__main__":
    main()
