"""A run whose model refuses, breaks and hangs; whole stack, the model and the sandbox SIMULATED."""

import time

import psycopg
import pytest

from app.domain.run import RunState
from benchmarks import saturation
from benchmarks.mock_server import metric, simulated_model
from benchmarks.stack import running_stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROPOSALS = 100
ONE_WORKER = ("--workers", "gpu,cpu,control")
"""A process fewer spends two seconds less on imports."""


def test_a_model_that_fails_loses_nothing_and_costs_no_proposal(monkeypatch: pytest.MonkeyPatch):
    for name in ("EVOQ_DATABASE_URL", "EVOQ_REDIS_URL"):
        monkeypatch.setenv(name, "set by the stack")  # monkeypatch restores it afterwards
    options = saturation.arguments(
        ["--in-flight", "32", "--model-seconds", "0.3", "--timeout", "2", *ONE_WORKER]
    )
    settings = saturation.environment(options, evaluation_seconds=0.0)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    with (
        simulated_model(options.model_seconds, options.in_flight, saturation.FAULTS) as base_url,
        running_stack(options.workers, settings) as stack,
    ):
        run = saturation.start(stack, options, base_url, PROPOSALS, options.timeout)
        deadline = time.monotonic() + 500
        while True:
            with stack.store.begin() as tx:
                now = tx.runs.get(run.id)
            if now.state is not RunState.RUNNING or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        injected = metric(base_url, "evoq_mock_llm_injected_faults_total")
        with psycopg.connect(stack.database_url.replace("+psycopg", "")) as connection:

            def all_of(statement: str) -> list[tuple[object, ...]]:
                return connection.execute(statement).fetchall()

            ordinals = all_of("SELECT ordinal FROM proposals WHERE ordinal >= 0 ORDER BY ordinal")
            states = dict(
                all_of("SELECT state, count(*) FROM proposals WHERE ordinal >= 0 GROUP BY state")
            )
            events = all_of("SELECT seq FROM events ORDER BY seq")

    assert now.state is RunState.FINISHED, now.reason
    assert injected > 0.1 * PROPOSALS
    assert [ordinal for [ordinal] in ordinals] == list(range(PROPOSALS))
    assert set(states) <= {"admitted", "cut"}, "a fault of the model is no fault of a program"
    assert sum(states.values()) == PROPOSALS
    assert [number for [number] in events] == list(range(1, len(events) + 1))
