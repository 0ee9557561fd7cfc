"""A real run on a fixed fleet, with a simulated model and sandbox: its times, and its demand."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from app.config.settings import RunSettings
from app.domain.run import RunState
from app.domain.search.back_pressure import SMALL, InFlightLimits
from benchmarks.stack import begin, running_stack

RECORDED_SECONDS = {"gpu": 2.0, "cpu": 1.0}
_SECONDS = """
    SELECT (SELECT sum(latency_seconds) FROM completions WHERE completions.proposal = proposals.id),
        (SELECT sum(wall_seconds) FROM trials
            WHERE trials.cohort = proposals.cohort AND proposals.program = ANY(players))
    FROM proposals WHERE NOT seed AND state = 'admitted' ORDER BY ordinal
"""


@dataclass(frozen=True, slots=True)
class Recording:
    """A real run on a fixed fleet.

    Attributes:
      seconds: Of each proposal at the model, and in the sandbox.
      took: From its start to its end.
      demand: Mean of `evoq_demand` by queue.
    """

    seconds: Sequence[tuple[float, float]]
    took: float
    demand: dict[str, float]


def record(proposals: int) -> Recording:
    """Records a real run on 32 places at the simulated model and 16 in simulated sandboxes."""
    environment = {
        "SIMULATED_MODEL_SECONDS": str(RECORDED_SECONDS["gpu"]),
        "SIMULATED_EVALUATION_SECONDS": str(RECORDED_SECONDS["cpu"]),
        "SIMULATED_MODEL_SLOTS": "32",
        "SIMULATED_EVALUATION_SLOTS": "16",
        "EVOQ_GENERATE_CONCURRENCY": "32",
        "EVOQ_EVALUATE_CONCURRENCY": "16",
    }
    with running_stack(["cpu,control", "gpu"], environment) as stack:
        while True:
            with stack.store.begin() as tx:
                if {"gpu", "cpu"} <= {worker.kind for worker in tx.workers.live()}:
                    break
            time.sleep(0.5)
        run = begin(
            stack,
            name="recorded",
            settings=RunSettings(),
            proposals=proposals,
            limits=InFlightLimits(SMALL, SMALL),
        )
        began, samples = time.monotonic(), list[tuple[int, int]]()
        address = stack.database_url.replace("+psycopg", "")
        with psycopg.connect(address, autocommit=True) as connection:
            while True:
                ask = "SELECT evoq_demand('gpu'), evoq_demand('cpu')"
                samples += connection.execute(ask).fetchall()
                with stack.store.begin() as tx:
                    if tx.runs.get(run.id).state is not RunState.RUNNING:
                        break
                time.sleep(0.5)
            took = time.monotonic() - began
            seconds = connection.execute(_SECONDS).fetchall()
        means = [sum(column) / len(samples) for column in zip(*samples, strict=True)]
        demand = dict(zip(("gpu", "cpu"), means, strict=True))
        return Recording([(float(a), float(b)) for a, b in seconds], took, demand)
