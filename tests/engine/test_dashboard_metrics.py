"""What Prometheus scrapes, and that rules and dashboards ask for nothing else."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
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
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Completion, Prompt
from app.domain.problem import Job, Outcome
from app.engine import lifecycle
from app.engine import steps as steps_of_engine
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop, Unavailable
from app.ports.records import Capacity, Worker
from app.reports.waiting import EndpointStatus, QueueState, read_queue
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.test_replies import Answering
from tests.engine.toy import ToySandbox, problem
from workers.metrics import StepMetrics

Labels = dict[str, str]
OF_ALERTS = re.compile(r"\b(evoq_[a-z_]+)(?:\{([^}]*)\})?")


def samples(text: bytes) -> dict[str, list[tuple[Labels, float]]]:
    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def address_of(store: SqlStore) -> str:
    return store._engine.url.set(drivername="postgresql").render_as_string(False)


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
    [(_, flushes)] = found["evoq_queue_flushes_total"]
    broker.flushdb()
    emptied = samples(scrape(reader(ctx, valkey)))
    assert emptied["evoq_queue_flushes_total"] == [({}, flushes + 1)]
    assert emptied["evoq_queue_uptime_seconds"][0][1] >= 0
    assert emptied["evoq_ledger_uptime_seconds"][0][1] > found["evoq_ledger_uptime_seconds"][0][1]


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
    with psycopg.connect(address_of(store)) as connection:
        connection.execute("UPDATE runs SET state = 'running', budget_cost_usd = 1")
        for kind in ("timeout", "memory"):
            connection.execute(
                "UPDATE proposals SET state = 'failed', failure_kind = %s, cut_reason = NULL"
                " WHERE id = (SELECT max(id) FROM proposals WHERE state = 'cut')",
                (kind,),
            )
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


class Killed(BaseException):
    """Ends a step as the end of its process does: nothing is released."""


class FaultySandbox(ToySandbox):
    """Kills its worker, is away, and ends two trials; then it works."""

    def __init__(self) -> None:
        super().__init__()
        self._faults: list[BaseException | Failure] = [
            Killed(),
            Unavailable("the sandbox is away"),
            Failure(FailureKind.TIMEOUT, "no result after 10 s"),
            Failure(FailureKind.MEMORY, "killed at 256 MiB"),
        ]

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if job.programs[0][1] == b"x = 0.0\n" or not self._faults:  # seeds are spared
            return super().run(job)
        fault = self._faults.pop(0)
        if isinstance(fault, BaseException):
            raise fault
        return Outcome(None, fault)


class RefusingModel(Answering):
    """Refuses the first request, as an endpoint without capacity does."""

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        if not self.asked:
            self.asked += prompts
            raise Unavailable("status 429")
        return super().complete(prompts)


def worked_off(ctx: Context, store: SqlStore, metrics: StepMetrics) -> None:
    """Runs a search to its end as workers, beat and `reap` do, however its steps end."""
    toy = problem()
    asked = replace(new_run(toy, budget=8), operators={"asked": 1.0})
    run = lifecycle.start(ctx, toy, asked).id
    messages = ctx.executor._messages  # type: ignore[attr-defined]
    for _ in range(200):
        if not messages:
            with psycopg.connect(address_of(store)) as connection:  # as when time has passed
                for table_name in ("proposals", "trials"):
                    connection.execute(
                        f"UPDATE {table_name} SET visible_at = now() - interval '1 s',"
                        f" leased_until = leased_until - interval '1 h'"
                    )
            steps_of_engine.reap(ctx, run)
            steps_of_engine.produce(ctx, run)
        if messages:
            step, subject = messages.popleft()
            with suppress(Unavailable), metrics.of(step), suppress(Killed):
                table(ctx)[step](subject)
        with ctx.store.begin() as tx:
            if tx.runs.get(run).state.final:
                return
    raise AssertionError("the run has not ended")


def shown_by(rule: str, found: dict[str, list[tuple[Labels, float]]]) -> float:
    """Returns the sum of the samples that the first metric of a rule selects."""
    metric, selector = OF_ALERTS.findall(rule)[0]
    wanted = re.findall(r'(\w+)=~?"([^"]*)"', selector)
    return sum(
        value
        for labels, value in found.get(metric, ())
        if all(labels.get(label) in values.split("|") for label, values in wanted)
    )


@pytest.mark.parametrize(
    ("alert", "faults"),
    [
        ("EvoqueueStepsRepeated", 1),  # the killed worker: its lease was lost, the step begun again
        ("EvoqueueTrialsKilled", 2),  # the trial that timed out, and the one that was killed
        ("EvoqueueStepsUnavailable", 2),  # the refused request, and the sandbox that was away
    ],
)
def test_each_fault_of_a_run_shows_in_a_metric_of_an_alert(
    ctx: Context, store: SqlStore, repository: Path, valkey: str, alert: str, faults: int
):
    rule = expressions(repository)[alert]
    toy, metrics = problem(), StepMetrics()

    def answer(prompt: Prompt) -> Completion:
        return Completion(f"x = {prompt.sample + 1}.5\n", "answering")

    model = RefusingModel(answer)
    faulty = replace(
        ctx, sandbox=FaultySandbox(), model=lambda run: model, problem=lambda digest: toy
    )

    worked_off(faulty, store, metrics)

    found = samples(scrape(reader(ctx, valkey))) | samples(generate_latest(metrics.registry))
    assert shown_by(rule, found) == faults


def test_a_lost_lease_shows_until_the_step_is_begun_again(
    ctx: Context, store: SqlStore, valkey: str
):
    toy = problem()
    run = lifecycle.start(replace(ctx, problem=lambda digest: toy), toy, new_run(toy)).id
    with psycopg.connect(address_of(store)) as connection:
        connection.execute(
            "UPDATE proposals SET leased_until = now() - interval '1 s', state = 'planned'"
        )

    found = samples(scrape(reader(ctx, valkey)))["evoq_leases"]
    [leases] = reader(ctx, valkey).system().leases

    assert {labels["state"]: n for labels, n in found} == {"held": 0.0, "lapsed": 1.0}
    assert (leases.run, leases.held, leases.lapsed, leases.repeated) == (run, 0, 1, 0)
