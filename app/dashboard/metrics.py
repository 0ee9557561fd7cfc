"""`/metrics` of the dashboard: the state of the search, read from ledger and queue at each scrape.

Workers have their own (`workers.metrics`): what only they know is how long steps take.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from app.adapters.model.congestion.gate import Ended
from app.adapters.queue.address import client_url
from app.adapters.queue.ticks import lengths, losses
from app.dashboard.reads import RunReader
from app.dashboard.system import queues_of
from app.domain.evaluation import FailureKind
from app.domain.run import Run, RunState
from app.domain.search.cohort import CutReason, State
from app.ports.ledger import Transaction
from app.ports.protocols import Unavailable
from app.ports.workers import WORKER_KINDS
from app.reports.funnel import read_funnel
from app.reports.summary import run_load
from app.reports.waiting import read_unserved, waiting_of

MOST_RUNS = 20
"""Runs that have metrics of their own: the newest, so that the number of series is bounded."""
_OUTCOMES = (State.ADMITTED, State.CUT, State.FAILED)


def scrape(reader: RunReader) -> bytes:
    """Returns the metrics in Prometheus's text format; says what cannot be reached, too."""
    registry = CollectorRegistry()
    registry.register(_Collector(reader))
    return generate_latest(registry)


class _Collector:
    """Reads everything anew."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def describe(self) -> list[Metric]:
        """Returns nothing: what there is follows from the ledger."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._queue()
        try:
            with self._reader.store.begin() as tx:
                families = [*self._deployment(tx), *_Runs(self._reader, tx).families()]
        except Unavailable:
            yield _gauge("evoq_ledger_up", "Whether the ledger answers.", 0)
            return
        yield _gauge("evoq_ledger_up", "Whether the ledger answers.", 1)
        yield from families

    def _queue(self) -> Iterator[Metric]:
        state = self._reader.queue()
        try:
            waiting = lengths(client_url(self._reader.redis_url), self._queues())
        except OSError:
            waiting = {}
        yield _gauge("evoq_queue_up", "Whether Redis answers.", bool(waiting))
        yield from self._losses()
        planning = bool(waiting) and state.planning
        yield _gauge("evoq_planning", "Whether beat and a worker that plans are at work.", planning)
        messages = GaugeMetricFamily(
            "evoq_queue_messages", "Messages that no worker has taken.", labels=["queue"]
        )
        for queue, n in waiting.items():
            messages.add_metric([queue], n)
        yield messages
        for name, text in (
            ("in_flight", "Requests without an answer."),
            ("window", "Requests that may be in flight."),
            ("waiting", "Requests that wait for the window."),
            ("silent_seconds", "Time since the last answer while requests wait for one."),
        ):
            family = GaugeMetricFamily(f"evoq_endpoint_{name}", text, labels=["endpoint"])
            for endpoint in state.endpoints:
                values = {
                    "in_flight": endpoint.in_flight,
                    "window": endpoint.window,
                    "waiting": endpoint.waiting,
                    "silent_seconds": endpoint.silent_seconds,
                }
                family.add_metric([endpoint.endpoint], values[name])
            yield family
        results = GaugeMetricFamily(
            "evoq_endpoint_results",
            "Requests that ended in the last minute; all but `answered` are repeated, or given up.",
            labels=["endpoint", "ended"],
        )
        for endpoint in state.endpoints:
            for ended in Ended:
                number = endpoint.recent.get(ended, 0)
                results.add_metric([endpoint.endpoint, ended.value], number)
        yield results

    def _queues(self) -> list[str]:
        """Returns the queues without labels, and those that live workers serve or steps wait at."""
        try:
            with self._reader.store.begin() as tx:
                return queues_of(tx)
        except Unavailable:
            return list(WORKER_KINDS)

    def _losses(self) -> Iterator[Metric]:
        try:
            lost = losses(client_url(self._reader.redis_url))
        except OSError:
            return
        yield _gauge("evoq_queue_uptime_seconds", "Since Redis was started.", lost.uptime_seconds)
        yield CounterMetricFamily(
            "evoq_queue_flushes", "How often Redis was emptied.", value=lost.flushes
        )

    def _deployment(self, tx: Transaction) -> Iterator[Metric]:
        live, capacity = tx.workers.live(), tx.workers.capacity()
        workers = GaugeMetricFamily("evoq_workers", "Live workers.", labels=["kind"])
        faulty = GaugeMetricFamily(
            "evoq_workers_faulty", "Live workers that cannot evaluate.", labels=["kind"]
        )
        for kind in WORKER_KINDS:
            workers.add_metric([kind], sum(worker.kind == kind for worker in live))
            faulty.add_metric([kind], sum(w.kind == kind and bool(w.fault) for w in live))
        demanded = Counter[tuple[str, str]]()
        for one in tx.workers.demand():
            demanded[one.queue, one.tag] += one.places
        demand = GaugeMetricFamily(
            "evoq_demand",
            "Places that running runs could use, as evoq_demand() of the ledger.",
            labels=["queue", "tag"],
        )
        for labels in {("gpu", ""), ("cpu", ""), *demanded}:
            demand.add_metric(labels, demanded[labels])
        at_work = sum(queue.claimant.at_work for queue in tx.trials.queues(()))
        asked = sum(endpoint.in_flight for endpoint in self._reader.queue().endpoints)
        places = GaugeMetricFamily("evoq_places", "Places of all live workers.", labels=["of"])
        used = GaugeMetricFamily(
            "evoq_utilisation", "Share of these places that is taken.", labels=["of"]
        )
        for of, number, taken in (
            ("model", capacity.model, asked),
            ("sandbox", capacity.sandbox, at_work),
        ):
            places.add_metric([of], number or 0)
            used.add_metric([of], taken / number if number else 0.0)
        unserved = GaugeMetricFamily(
            "evoq_unserved_steps",
            "Steps that wait for a worker of a fleet, and no live worker serves it.",
            labels=["queue"],
        )
        waiting = read_unserved(tx)
        for queue in queues_of(tx):
            unserved.add_metric([queue], waiting.get(queue, 0))
        yield from (workers, faulty, places, used, demand, unserved)
        uptime = tx.history.uptime_seconds()
        yield _gauge("evoq_ledger_uptime_seconds", "Since Postgres was started.", uptime)
        waits = tx.history.lock_waits()
        text = "Sessions that wait for a lock of the ledger."
        yield _gauge("evoq_ledger_lock_waits", text, waits.sessions)
        text = "Time that the first of these sessions has waited."
        yield _gauge("evoq_ledger_lock_wait_seconds", text, waits.longest_seconds)
        yield _gauge("evoq_trials_at_work", "Trials that are in a sandbox.", at_work)


class _Runs:
    """The metrics of the newest runs."""

    def __init__(self, reader: RunReader, tx: Transaction) -> None:
        self._reader, self._tx = reader, tx
        self._gauges: dict[str, GaugeMetricFamily] = {}
        self._counters: dict[str, CounterMetricFamily] = {}

    def families(self) -> list[Metric]:
        queue = self._reader.queue()
        newest = self._tx.runs.newest(MOST_RUNS)
        states = GaugeMetricFamily("evoq_runs", "Of the newest runs, by state.", labels=["state"])
        for state in RunState:
            states.add_metric([state.value], sum(run.state is state for run in newest))
        for run in newest:
            self._run(run)
            waits = bool(waiting_of(self._tx, run, queue))
            self._set("evoq_run_waiting", "Whether the run waits for something.", run, waits)
        return [states, *self._gauges.values(), *self._counters.values()]

    def _run(self, run: Run) -> None:
        tx, budget = self._tx, run.budget
        settled = tx.history.states(run.id)
        for state in _OUTCOMES:
            text = "Settled proposals."
            self._count("evoq_proposals", text, run, settled.get(state, 0), outcome=state.value)
        failures, cuts = tx.history.failures(run.id), tx.history.cuts(run.id)
        # Each kind has a value from the start, because a rate needs it before the first failure.
        for kind in FailureKind:
            self._count("evoq_failures", "Failed proposals.", run, failures.get(kind, 0), kind=kind)
        for reason in CutReason:
            text = "Proposals that were cut."
            self._count("evoq_cuts", text, run, cuts.get(reason, 0), reason=reason)
        reused = tx.history.reused(run.id).trials
        self._count("evoq_trials_reused", "Trials that took an equal one's result.", run, reused)
        self._funnel(run)
        best = tx.history.best_quality(run)
        if best is not None:
            self._set("evoq_best_fitness", "Fitness of the best program.", run, best.fitness)
        self._set("evoq_budget_proposals", "Proposals it may plan.", run, budget.proposals)
        if budget.cost_usd is not None:
            self._set("evoq_budget_usd", "Dollars it may spend.", run, budget.cost_usd)
        self._count("evoq_tokens", "Tokens charged.", run, run.tokens)
        self._count("evoq_cost_usd", "Dollars charged.", run, run.cost_usd)
        for account in tx.completions.accounts(run.id):
            labels = {"role": account.role, "model": account.model}
            numbers = {
                "evoq_completions": account.completions,
                "evoq_completions_reused": account.reused,
                "evoq_prompt_tokens": account.prompt_tokens,
                "evoq_cached_tokens": account.cached_tokens,
                "evoq_reply_tokens": account.completion_tokens,
                "evoq_reply_seconds": account.latency_seconds,
            }
            for name, number in numbers.items():
                self._count(name, "Of completions, by role and model.", run, number, **labels)
        repeated = tx.leases.repeated(run.id)
        self._count(
            "evoq_repeated_steps", "Steps begun again, as after a lost worker.", run, repeated
        )
        if not run.state.final:
            for kept, leases in (("held", tx.leases.held), ("lapsed", tx.leases.lapsed)):
                text = "Steps in progress, and unfinished ones whose lease has run out."
                self._set("evoq_leases", text, run, leases(run.id), state=kept)
            load = run_load(tx, run, tx.proposals.backlog(run.id))
            for stage, at in (("generating", load.generating), ("evaluating", load.evaluating)):
                text = "Proposals in the stage."
                self._set("evoq_in_flight", text, run, at.in_flight, stage=stage)
                text = "Proposals above which none is planned."
                self._set("evoq_in_flight_limit", text, run, at.limit, stage=stage)
            for stage, age in (
                ("generating", tx.proposals.longest_wait(run.id)),
                ("evaluating", tx.proposals.longest_test(run.id)),
            ):
                text = "Age of the oldest proposal in the stage: since it was planned, or begun."
                self._set("evoq_queue_age_seconds", text, run, age, stage=stage)

    def _funnel(self, run: Run) -> None:
        for line in read_funnel(self._tx, run.id).lines:
            labels = {"operator": line.operator, "model": line.model}
            for step in line.steps:
                numbers = {
                    "evoq_funnel_proposals": step.proposals,
                    "evoq_funnel_tokens": step.tokens,
                    "evoq_funnel_model_seconds": step.model_seconds,
                    "evoq_funnel_sandbox_seconds": step.sandbox_seconds,
                }
                for name, number in numbers.items():
                    text = "Proposals that came so far, and what was spent on them."
                    self._set(name, text, run, number, **labels, step=step.name)

    def _set(self, name: str, text: str, run: Run, value: float, **labels: str) -> None:
        if name not in self._gauges:
            self._gauges[name] = GaugeMetricFamily(name, text, labels=["run", *labels])
        self._gauges[name].add_metric([run.name, *labels.values()], value)

    def _count(self, name: str, text: str, run: Run, value: float, **labels: str) -> None:
        if name not in self._counters:
            self._counters[name] = CounterMetricFamily(name, text, labels=["run", *labels])
        self._counters[name].add_metric([run.name, *labels.values()], value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
