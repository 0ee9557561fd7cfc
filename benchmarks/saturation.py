"""How near the whole stack comes to what its model and its sandboxes could do; all SIMULATED.

    python -m benchmarks.saturation                         # 32 x 64: 0.8 s and 2 s, 60 s; the goal is 31/s
    python -m benchmarks.saturation --in-flight 128 --evaluations 256
    python -m benchmarks.saturation --faults                # 10 % 429s, 5 % 5xx, 2 % hangs against none

Real: Postgres, Valkey, Celery workers and beat as processes, the steps, the ledger, prompts, the
product's own model adapter over HTTP.  Simulated: the model (`evoq mock-llm`, in a process of its
own on the same machine) and the evaluation (a sleep in place of a sandbox).  Beside it, as the
control, the loop of document 001.  Prints one JSON document.
"""  # noqa: E501  commands are not broken

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psycopg

from app.config.settings import ModelSettings, QueueSettings, RunSettings, SearchSettings
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import STARTING, InFlightLimits
from app.engine import lifecycle
from benchmarks import slot_loop
from benchmarks.mock_server import latencies, metric, simulated_model
from benchmarks.stack import Stack, begin, running_stack

FAULTS = {"--rate-429": 0.10, "--rate-5xx": 0.05, "--rate-hang": 0.02}
ENDLESS = 10_000_000


@dataclass(frozen=True, slots=True)
class Counted:
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
class Measured:
    """What one stretch came to, per second where it says so.

    Attributes:
      model_busy: Share of the model's places that were taken, by its own gauge, sampled.
      model_seconds: Of a completion by the mock's own clock, its queue included: more than was told
        where it had to wait for a place, or for a processor.
      cpu_ms: Processor milliseconds per evaluated proposal, the mock's included.
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
    told = arguments()
    print(json.dumps(_faulty(told) if told.faults else _saturated(told), indent=2))


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--in-flight", type=int, default=32, help="places of the simulated model")
    parser.add_argument("--evaluations", type=int, default=64, help="that sleep at once")
    parser.add_argument("--model-seconds", type=float, default=0.8)
    parser.add_argument("--evaluation-seconds", type=float, default=2.0)
    parser.add_argument(
        "--threads", type=int, help="that generate; half as many again as --in-flight"
    )
    parser.add_argument(
        "--cpu-threads", type=int, help="of each worker that evaluates; 25 %% above --evaluations"
    )
    parser.add_argument("--buffer", type=int, help="planned proposals; three times --in-flight")
    parser.add_argument(
        "--measured", action="store_true", help="let the run size what is in flight by itself"
    )
    parser.add_argument("--workers", nargs="+", default=["gpu", "cpu,control"])
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--no-control", action="store_true")
    parser.add_argument(
        "--faults", action="store_true", help="a run of --proposals, with and without"
    )
    parser.add_argument("--proposals", type=int, default=1000)
    parser.add_argument("--timeout", type=float, default=60.0, help="of one attempt, at most")
    return parser.parse_args(given)


def _saturated(told: argparse.Namespace) -> dict[str, object]:
    ideal = min(told.in_flight / told.model_seconds, told.evaluations / told.evaluation_seconds)
    with simulated_model(told.model_seconds, told.in_flight) as base_url:
        control = None
        if not told.no_control:
            seconds = (told.evaluation_seconds, told.warm_up / 2, told.seconds)
            control = slot_loop.per_second(base_url, told.in_flight, told.evaluations, seconds)
        with running_stack(told.workers, environment(told, told.evaluation_seconds)) as stack:
            run = start(stack, told, base_url, ENDLESS, told.timeout)
            time.sleep(told.warm_up)
            measured = _measure(stack, run, base_url, told)
            lifecycle.cancel(stack.ctx, run.id)
            parts = stack.spent.by_part()
    return {
        "what": "whole stack; model and evaluation are SIMULATED (a mock server, a sleep)",
        "cores": os.cpu_count(),
        "settings": vars(told),
        "ideal_per_second": ideal,
        "of_ideal": round(measured.evaluated_per_second / ideal, 3),
        "stack": asdict(measured),
        "document_001_per_second": control,
        "document_001_ideal": told.in_flight / (told.model_seconds + told.evaluation_seconds),
        "cpu_seconds_by_part": parts,
    }


def _faulty(told: argparse.Namespace) -> dict[str, object]:
    """Runs the same number of proposals with and without faults, and compares.

    Rates are those of the whole run, from its first plan to its end.  A hang holds one of the
    places until it times out: that time, as the mock server measured it, is not at hand for
    replies, and is what `capacity_left` allows for.  Refusals are answered at once and are allowed
    for with nothing, nor is time in which nothing was asked.
    """
    clean, faulty = (_finished(told, faults) for faults in ({}, FAULTS))
    rates = [told.proposals / one.seconds_in_all for one in (clean, faulty)]
    left = 1 - faulty.hang_seconds / told.in_flight / faulty.seconds_in_all
    return {
        "what": "whole stack; model and evaluation are SIMULATED (a mock server, no sandbox)",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "settings": vars(told),
        "faults": FAULTS,
        "clean": asdict(clean),
        "faulty": asdict(faulty),
        "of_clean": round(rates[1] / rates[0], 3),
        "capacity_left": round(left, 3),
        "of_clean_at_same_capacity": round(rates[1] / rates[0] / left, 3),
    }


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run came to.

    Attributes:
      seconds_in_all: From its first plan to its end.
      marks: Seconds until a tenth, five tenths, nine tenths, 99 hundredths and all had settled.
      hang_seconds: How long hanging requests were waited for, together, by the mock's clock.
    """

    state: str
    reason: str
    settled: int
    failed: int
    faults_injected: float
    hang_seconds: float
    seconds_in_all: float
    marks: tuple[float, ...]


def _finished(told: argparse.Namespace, faults: dict[str, float]) -> Finished:
    with (
        simulated_model(told.model_seconds, told.in_flight, faults) as base_url,
        running_stack(told.workers, environment(told, 0.0)) as stack,
    ):
        run = start(stack, told, base_url, told.proposals, told.timeout)
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
        next((one.at for one in seen if one.settled >= share * told.proposals), seen[-1].at)
        for share in (0.1, 0.5, 0.9, 0.99, 1.0)
    ]
    return Finished(
        state=state,
        reason=now.reason,
        settled=seen[-1].settled,
        failed=seen[-1].failed,
        faults_injected=injected,
        hang_seconds=round(hung, 1),
        seconds_in_all=round(seen[-1].at - seen[0].at, 1),
        marks=tuple(round(at - seen[0].at, 1) for at in marks),
    )


def environment(told: argparse.Namespace, evaluation_seconds: float) -> dict[str, str]:
    """Returns what workers are told; those that evaluate share the places of the simulation."""
    evaluating = sum("cpu" in queues.split(",") for queues in told.workers)
    return {
        "SIMULATED_MODEL": "settings",
        "SIMULATED_EVALUATION_SECONDS": str(evaluation_seconds),
        "SIMULATED_EVALUATION_SLOTS": str(told.evaluations // evaluating),
        "EVOQ_GENERATE_CONCURRENCY": str(told.threads or told.in_flight * 3 // 2),
        "EVOQ_EVALUATE_CONCURRENCY": str(
            told.cpu_threads or told.evaluations * 5 // 4 // evaluating
        ),
        "EVOQ_DATABASE_CONNECTIONS": "32",
    }


def start(
    stack: Stack, told: argparse.Namespace, base_url: str, proposals: int, timeout: float
) -> Run:
    model = ModelSettings(model="mock", base_url=base_url, timeout_seconds=timeout, max_tokens=400)
    limits = InFlightLimits(told.buffer or 3 * told.in_flight, 2 * told.evaluations)
    queue = QueueSettings(generating=limits.generating, evaluating=limits.evaluating)
    settings = RunSettings(
        search=SearchSettings(seed=1), llm=model, queue=QueueSettings() if told.measured else queue
    )
    return begin(
        stack,
        name="saturation",
        settings=settings,
        proposals=proposals,
        limits=STARTING if told.measured else limits,
    )


def _measure(stack: Stack, run: Run, base_url: str, told: argparse.Namespace) -> Measured:
    before, spent = counted(stack, run), stack.spent.cpu_seconds()
    answered = [latencies(base_url)]
    running: list[float] = []
    while time.monotonic() < before.at + told.seconds:
        time.sleep(0.5)
        running.append(metric(base_url, "vllm:num_requests_running"))
    answered.append(latencies(base_url))
    (seconds_before, n_before), (seconds_after, n_after) = answered
    after, cost = counted(stack, run), stack.spent.cpu_seconds() - spent
    seconds, evaluated = after.at - before.at, after.evaluated - before.evaluated
    return Measured(
        seconds=round(seconds, 2),
        evaluated_per_second=round(evaluated / seconds, 2),
        settled_per_second=round((after.settled - before.settled) / seconds, 2),
        failed=after.failed - before.failed,
        duplicates=after.duplicates - before.duplicates,
        model_busy=round(sum(running) / len(running) / told.in_flight, 3),
        model_seconds=round((seconds_after - seconds_before) / max(1.0, n_after - n_before), 3),
        cpu_ms=round(1000 * cost / max(1, evaluated), 2),
        load=round(os.getloadavg()[0], 1),
    )


def counted(stack: Stack, run: Run) -> Counted:
    with psycopg.connect(stack.database_url.replace("+psycopg", "")) as connection:
        trials = "SELECT count(*) FROM trials WHERE run = %s AND evaluation IS NOT NULL"
        [evaluated] = connection.execute(trials, (run.id,)).fetchone() or (0,)
        proposals = (
            "SELECT count(settled_at), count(*) FILTER (WHERE state = 'failed'),"
            " count(*) FILTER (WHERE state = 'cut')"
            " FROM proposals WHERE run = %s AND ordinal >= 0"
        )
        counts = connection.execute(proposals, (run.id,)).fetchone() or (0, 0, 0)
    return Counted(time.monotonic(), evaluated, *counts)


if __name__ == "__main__":
    main()
