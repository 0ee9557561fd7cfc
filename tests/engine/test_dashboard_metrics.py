"""What Prometheus scrapes, and that rules and dashboards ask for nothing else."""

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.adapters.queue.ticks import handled
from app.adapters.store.sql import SqlStore
from app.dashboard.metrics import scrape
from app.dashboard.reads import RunReader
from app.engine.context import Context
from app.ports.protocols import Unavailable
from app.ports.records import Capacity, Worker
from app.reports.waiting import EndpointStatus, QueueState, read_queue
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import problem
from workers.metrics import StepMetrics

Labels = dict[str, str]
OF_ALERTS = re.compile(r"\b(evoq_[a-z_]+)(?:\{([^}]*)\})?")


def samples(text: bytes) -> dict[str, list[tuple[Labels, float]]]:
    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def reader(ctx: Context, redis_url: str, **state: Any) -> RunReader:
    known = QueueState(**state) if state else None
    return RunReader(ctx.store, redis_url, ctx.problem, lambda: known or read_queue(redis_url))


@pytest.fixture
def finished(ctx: Context) -> int:
    return run_to_the_end(ctx, problem(), new_run(problem()))


@pytest.fixture
def steps() -> StepMetrics:
    """Metrics of a worker that has seen each way in which a step ends."""
    metrics = StepMetrics()
    with metrics.of("evaluate"):
        pass
    for error in (Unavailable("away"), ValueError("a defect")):
        with pytest.raises(type(error)), metrics.of("generate"):
            raise error
    return metrics


def test_a_step_is_counted_by_how_it_ends(steps: StepMetrics):
    found = samples(generate_latest(steps.registry))["evoq_step_seconds_count"]

    assert {(s["step"], s["outcome"]): n for s, n in found} == {
        ("evaluate", "done"): 1.0,
        ("generate", "unavailable"): 1.0,
        ("generate", "raised"): 1.0,
    }


def test_a_scrape_tells_what_a_run_did(
    ctx: Context, store: SqlStore, finished: int, broker: Any, valkey: str
):
    handled(broker, idle=False)
    broker.rpush("cpu", "a message", "another")
    with store.begin() as tx:
        tx.workers.record(Worker("w", "cpu", fault="no sandbox"), {}, Capacity(None, 4))
        states = tx.history.states(finished)
        best = tx.history.best(finished)

    found = samples(scrape(reader(ctx, valkey)))

    outcomes = {labels["outcome"]: n for labels, n in found["evoq_proposals_total"]}
    assert outcomes == {state.value: n for state, n in states.items()}
    assert sum(outcomes.values()) == 40
    assert best is not None
    assert found["evoq_best_fitness"] == [({"run": "toy-run"}, best.fitness)]
    assert ({"queue": "cpu"}, 2.0) in found["evoq_queue_messages"]
    assert ({"kind": "cpu"}, 1.0) in found["evoq_workers_faulty"]
    assert [n for _, n in found["evoq_ledger_up"] + found["evoq_queue_up"]] == [1.0, 1.0]
    assert found["evoq_planning"] == [({}, 1.0)]
    assert found["evoq_repeated_steps_total"] == [({"run": "toy-run"}, 0.0)]


def test_a_scrape_without_a_ledger_and_a_queue_says_so(ctx: Context):
    away = SqlStore("postgresql+psycopg://nobody@127.0.0.1:9/none")

    found = samples(scrape(RunReader(away, "redis://127.0.0.1:9/0", ctx.problem, QueueState)))

    assert found["evoq_ledger_up"] == found["evoq_queue_up"] == found["evoq_planning"]
    assert found["evoq_ledger_up"] == [({}, 0.0)]
    assert "evoq_runs" not in found


@pytest.fixture
def scraped(
    ctx: Context, store: SqlStore, finished: int, steps: StepMetrics, valkey: str
) -> dict[str, list[tuple[Labels, float]]]:
    """All that is scraped of a deployment that has done a little of everything."""
    endpoint = EndpointStatus("http://model", 4, 8, 1, 2, silent_seconds=1.0)
    address = store._engine.url.set(drivername="postgresql").render_as_string(False)
    with psycopg.connect(address) as connection:
        connection.execute("UPDATE runs SET state = 'running', budget_cost_usd = 1")
        connection.execute(
            "INSERT INTO completions (cohort, proposal, asker, turn, place, text, model, finish,"
            " prompt_tokens, completion_tokens, latency_seconds, prompt, sample, parameters)"
            " SELECT cohort, id, 'operator', 0, 0, '', 'm', 'stop', 5, 6, 0.5, '', ordinal, '{}'"
            " FROM proposals LIMIT 3"
        )
    found = samples(scrape(reader(ctx, valkey, endpoints=[endpoint])))
    return found | samples(generate_latest(steps.registry))


def expressions(repository: Path) -> dict[str, str]:
    rules = yaml.safe_load((repository / "infra/prometheus/alerts.yml").read_text())
    board = json.loads((repository / "infra/grafana/evoqueue.json").read_text())
    alerts = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    panels = {panel["title"]: panel["targets"][0]["expr"] for panel in board["panels"]}
    assert len(alerts) > 10
    assert len(panels) > 10
    return alerts | panels


def test_every_expression_asks_for_metrics_and_labels_that_are_scraped(
    scraped: dict[str, list[tuple[Labels, float]]], repository: Path
):
    for name, expression in expressions(repository).items():
        asked = OF_ALERTS.findall(expression)
        assert asked, name
        for metric, selector in asked:
            assert metric in scraped, (name, metric)
            for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', selector):
                known = {labels.get(label) for labels, _ in scraped[metric]}
                wanted = value.split("|") if operator == "=~" else [value]
                assert set(wanted) <= known, (name, metric, label, known)
        for label in re.findall(r"(?:by|without|ignoring|on) ?\(([^)]*)\)", expression):
            names = {each.strip() for each in label.split(",")} - {"instance", "le"}
            metrics = {metric for metric, _ in asked}
            assert all(
                any(each in labels for metric in metrics for labels, _ in scraped[metric])
                for each in names
            ), (name, label)
