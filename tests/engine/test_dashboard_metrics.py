"""What Prometheus scrapes, and that rules and dashboards ask for nothing else."""

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from prometheus_client import generate_latest

from app.adapters.queue.ticks import TICK_KEY, handled
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
from app.ports.workers import Capacity, Worker
from app.reports.waiting import EndpointStatus, QueueState, read_queue
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.promql import Samples, evaluate, samples
from tests.engine.test_replies import Answering
from tests.engine.toy import ToySandbox, problem
from workers.metrics import STEPS, StepMetrics

MODEL = EndpointStatus(
    "http://model", 4, 8, 1, 2, recent={"answered": 3, "busy": 1}, silent_seconds=1.0
)


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

    assert {(s["step"], s["outcome"]): n for s, n in found if n} == {
        ("evaluate", "done"): 1.0,
        ("generate", "unavailable"): 1.0,
        ("generate", "raised"): 1.0,
    }
    assert len(found) == len(STEPS) * 3  # those of no step yet are 0: a rate begins there


def test_a_scrape_tells_what_a_run_did(
    ctx: Context, store: SqlStore, finished: int, broker: Any, valkey: str
):
    handled(broker, idle=False)
    # Without this the tick would be gone after five seconds.
    broker.persist(TICK_KEY)
    broker.rpush("cpu", "a message", "another")
    with store.begin() as tx:
        tx.workers.record(Worker("w", "cpu", fault="no sandbox"), {}, Capacity(None, 4))
        states = tx.history.states(finished)
        best = tx.history.best(finished)

    found = samples(scrape(reader(ctx, valkey)))

    outcomes = {labels["outcome"]: n for labels, n in found["evoq_proposals_total"]}
    assert outcomes == {state.value: n for state, n in states.items()}
    assert sum(outcomes.values()) == 24
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


def test_who_waits_for_a_lock_of_the_ledger_is_shown(ctx: Context, store: SqlStore, valkey: str):
    def read() -> tuple[float, float]:
        found = samples(scrape(reader(ctx, valkey)))
        return found["evoq_ledger_lock_waits"][0][1], found["evoq_ledger_lock_wait_seconds"][0][1]

    before = read()
    lock, address = "SELECT pg_advisory_lock(1)", address_of(store)
    with psycopg.connect(address) as holder, psycopg.connect(address) as waiter:
        holder.execute(lock)
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(waiter.execute, lock)
            during = next(waits for _ in range(500) if (waits := read())[1] > 0.1)
            holder.execute("SELECT pg_advisory_unlock(1)")
            ended.result()

    assert before == (0, 0)
    assert during[0] == 1
    assert read() == (0, 0)


def test_places_and_ages_show_how_busy_a_deployment_is(ctx: Context, store: SqlStore, valkey: str):
    toy = problem()
    run = lifecycle.start(replace(ctx, problem=lambda digest: toy), toy, new_run(toy)).id
    with store.begin() as tx:
        tx.workers.record(Worker("w", "cpu"), {}, Capacity(4, 8))
    with psycopg.connect(address_of(store)) as connection:
        connection.execute("UPDATE cohorts SET planned_at = now() - interval '1 h'")
        connection.execute(
            "INSERT INTO programs VALUES (repeat('0', 64), 'x', 'python', 1);"
            "UPDATE proposals SET state = 'testing', begun_at = now() - interval '1 min'"
            " WHERE id = (SELECT min(id) FROM proposals);"
            "INSERT INTO trials (run, cohort, island, stage, players, cases, visible_at,"
            " leased_until) SELECT run, cohort, 0, n::text, ARRAY[repeat('0', 64)], '{}', now(),"
            " now() + interval '1 min' FROM (SELECT * FROM proposals LIMIT 1),"
            " generate_series(1, 2) AS n"
        )

    found = samples(scrape(reader(ctx, valkey, endpoints=[MODEL])))

    assert {labels["of"]: n for labels, n in found["evoq_places"]} == {"model": 4, "sandbox": 8}
    used = {labels["of"]: n for labels, n in found["evoq_utilisation"]}
    assert used == {"model": 1 / 4, "sandbox": 2 / 8}
    demand = {(labels["queue"], labels["tag"]): n for labels, n in found["evoq_demand"]}
    assert demand == {("gpu", ""): 1.0, ("cpu", ""): 2.0}
    ages = {labels["stage"]: n for labels, n in found["evoq_queue_age_seconds"]}
    assert ages == {"generating": 0.0, "evaluating": pytest.approx(60, abs=30)}
    assert {labels["ended"]: n for labels, n in found["evoq_endpoint_results"] if n} == {
        "answered": 3,
        "busy": 1,
    }
    assert run


def expressions(repository: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Returns the expressions of alerts, and those of the panels of Grafana."""
    rules = yaml.safe_load((repository / "infra/prometheus/alerts.yml").read_text())
    board = json.loads((repository / "infra/grafana/evoqueue.json").read_text())
    alerts = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    panels = {
        panel["title"]: [target["expr"] for target in panel["targets"]] for panel in board["panels"]
    }
    return alerts, panels


def test_every_expression_gives_values_of_a_deployment_that_has_done_a_little_of_everything(
    ctx: Context, store: SqlStore, finished: int, valkey: str, repository: Path
):
    metrics = StepMetrics()

    def scraped() -> Samples:
        of_dashboard = samples(
            scrape(reader(ctx, valkey, endpoints=[MODEL])), instance="dashboard:8642"
        )
        return of_dashboard | samples(generate_latest(metrics.registry), instance="worker:9464")

    with psycopg.connect(address_of(store)) as connection:
        connection.execute("UPDATE runs SET state = 'running', budget_cost_usd = 1, cost_usd = 2")
        connection.execute(
            "INSERT INTO completions (cohort, proposal, asker, turn, place, text, model, finish,"
            " prompt_tokens, completion_tokens, latency_seconds, prompt, sample, parameters)"
            " SELECT cohort, id, 'operator', 0, 0, '', 'm', 'stop', 5, 6, 0.5, '', ordinal, '{}'"
            " FROM proposals LIMIT 3"
        )
    before = scraped()
    with psycopg.connect(address_of(store)) as connection:
        for kind in ("timeout", "memory"):
            connection.execute(
                "UPDATE proposals SET state = 'failed', failure_kind = %s, cut_reason = NULL"
                " WHERE id = (SELECT max(id) FROM proposals WHERE state = 'cut')",
                (kind,),
            )
        connection.execute("UPDATE completions SET prompt_tokens = 50, cached_tokens = 20")
    for error in (Unavailable("away"), ValueError("a defect")):
        with suppress(type(error)), metrics.of("evaluate"):
            raise error
    alerts, panels = expressions(repository)
    after = scraped()

    for title, targets in panels.items():
        for expression in targets:
            assert evaluate(expression, (0, before), (60, after)), title
    for alert, expression in alerts.items():
        bare = re.sub(r"(==|[<>]) [\d.]+", "", expression)  # whatever the values are
        assert evaluate(bare, (0, before), (60, after)), alert
        evaluate(expression, (0, before), (60, after))
    [(_, hit)] = evaluate(
        panels["Share of prompt tokens from the prefix cache"][0], (0, before), (60, after)
    )
    assert hit == 60 / 135


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


def worked_off(ctx: Context, run: int, store: SqlStore, metrics: StepMetrics) -> None:
    """Runs a search to its end as workers, beat and `reap` do, however its steps end."""
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


def test_faults_of_a_run_fire_the_alerts_that_name_them_and_no_others(
    ctx: Context, store: SqlStore, repository: Path, valkey: str, broker: Any
):
    alerts, _ = expressions(repository)
    toy, metrics = problem(), StepMetrics()

    def answer(prompt: Prompt) -> Completion:
        return Completion(f"x = {prompt.sample + 1}.5\n", "answering")

    model = RefusingModel(answer)
    faulty = replace(
        ctx, sandbox=FaultySandbox(), model=lambda run: model, problem=lambda digest: toy
    )
    asked = replace(new_run(toy, budget=8), operators={"asked": 1.0})
    run = lifecycle.start(faulty, toy, asked).id
    with store.begin() as tx:
        for kind in ("gpu", "cpu"):
            tx.workers.record(Worker(kind, kind), {}, Capacity(4, 8))

    def scraped() -> Samples:
        handled(broker, idle=False)
        found = samples(scrape(reader(ctx, valkey)), instance="dashboard:8642")
        found["evoq_ledger_uptime_seconds"] = found["evoq_queue_uptime_seconds"] = [({}, 3600.0)]
        return found | samples(generate_latest(metrics.registry), instance="worker:9464")

    before = scraped()
    worked_off(faulty, run, store, metrics)
    broker.flushdb()
    after = scraped()

    fired = {name for name, rule in alerts.items() if evaluate(rule, (0, before), (9, after))}
    assert fired == {
        "EvoqueueStepsRepeated",  # the killed worker: its lease was lost, the step begun again
        "EvoqueueStepsUnavailable",  # the refused request, and the sandbox that was away
        "EvoqueueQueueEmptied",
    }
    killed = alerts["EvoqueueTrialsKilled"].replace("> 0.5", "> 0")
    found = evaluate(killed, (0, before), (9, after))
    assert {labels["kind"]: share for labels, share in found} == {"timeout": 1 / 8, "memory": 1 / 8}


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
