"""Connections to the ledger that are cut, again and again, cost time and nothing else."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import psycopg
import pytest

from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.leases import LeaseRenewer
from app.adapters.store.sql import SqlStore
from app.domain.events import SETTLING
from app.domain.operator import Completion, Prompt
from app.domain.run import RunState
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.ledger import Transaction
from app.ports.protocols import NEVER, Stop, Store, Unavailable
from tests.engine.conftest import new_run, table, with_process
from tests.engine.executors import Numbers, RecordedMessages, UnreliableQueue, planned, settled
from tests.engine.toy import problem

pytestmark = pytest.mark.timing

PACE = Pace(retry_seconds=0.0)
THREADS = 32
CONNECTIONS = 8
BUDGET = 80
TOKENS = 7
LEASE_SECONDS = 2.0
PROGRESS = 8
"""Events from one cut to the next, so that a machine that is slow is not cut more often."""


class CutAt:
    """A ledger whose connection is cut in the transaction of that number.

    Args:
      store: The ledger.
      number: From 1.
      times: In so many transactions from there on.
      committed: Whether they were committed, and only nobody heard of it.
    """

    def __init__(
        self, store: Store, number: int, times: int = 1, *, committed: bool = False
    ) -> None:
        self._store = store
        self._cut = range(number, number + times)
        self._committed = committed
        self._begun = 0

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        self._begun += 1
        cut = self._begun in self._cut
        with self._store.begin() as tx:
            yield tx
            if cut and not self._committed:
                raise Unavailable("the connection was cut")
        if cut:
            raise Unavailable("the connection was cut")

    def close(self) -> None: ...


@pytest.mark.parametrize("times", [1, 10])
@pytest.mark.parametrize("committed", [False, True])
def test_an_answer_outlives_the_connections_it_was_saved_over(
    ctx: Context, committed: bool, times: int
) -> None:
    model = Numbers(tokens=TOKENS)
    ctx = replace(ctx, executor=RecordedMessages(), model=lambda run: model)
    run, cohorts = planned(ctx, 1, "asked")
    saving = 3  # after the lease and the briefing
    steps.generate(
        replace(ctx, store=CutAt(ctx.store, saving, times, committed=committed)), *cohorts
    )
    _, trials, _ = ctx.executor.take()
    steps.evaluate(ctx, *trials)
    assert settled(ctx, run) == [0]
    assert model.asked == 2  # its operator has two turns
    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).tokens == 2 * TOKENS


def test_a_ledger_that_goes_away_after_the_lease_costs_no_attempt(ctx: Context) -> None:
    ctx = replace(ctx, executor=RecordedMessages(), pace=PACE)
    run, cohorts = planned(ctx, 3)
    with pytest.raises(Unavailable, match="the connection was cut"):
        steps.generate(replace(ctx, store=CutAt(ctx.store, 2)), *cohorts)
    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).reason == "waiting: the connection was cut"
        assert len(tx.proposals.claim(cohorts, 30, attempts=1)) == 3


class Paid:
    """A model that takes a moment, and counts what it was asked."""

    name = "paid"

    def __init__(self) -> None:
        self.asked = 0
        self._lock = threading.Lock()

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        time.sleep(0.01)
        with self._lock:
            self.asked += len(prompts)
            latency = float(self.asked)
        return [
            Completion(
                f"x = {random.Random(prompt.sample).uniform(-4, 8):.6f}\n",
                self.name,
                completion_tokens=TOKENS,
                latency_seconds=latency,
            )
            for prompt in prompts
        ]


def cut(database: str) -> int:
    """Ends about four in ten of the connections to the ledger; returns how many."""
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as c:
        query = """
            SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE application_name = 'evoqueue' AND random() < 0.4
        """
        [(ended,)] = c.execute(query).fetchall()
    return int(ended)


def test_two_processes_whose_connections_are_cut_lose_no_step_no_answer_and_no_thread(
    ctx: Context, database: str
) -> None:
    queue, model, toy = UnreliableQueue(1), Paid(), problem()
    ctx = replace(
        ctx,
        executor=queue,
        model=lambda run: model,
        pace=Pace(LEASE_SECONDS, 0.2, 0.1, attempts=50),
    )
    new = replace(new_run(toy, budget=BUDGET, in_flight=128, islands=3), operators={"asked": 1.0})
    run = lifecycle.start(ctx, toy, new)
    stop, errors = threading.Event(), list[str]()

    with ExitStack() as stack:
        processes = []
        for _ in range(2):
            store = SqlStore(database, connections=CONNECTIONS)
            renewer = LeaseRenewer(store, LEASE_SECONDS)
            stack.callback(store.close)
            stack.callback(renewer.close)
            processes.append(
                with_process(
                    replace(ctx, store=store), share=GroupCommit().share, keep_lease=renewer.keep
                )
            )
        threads = [
            threading.Thread(
                target=queue.serve, args=(table(one), stop, errors, (Unavailable,)), daemon=True
            )
            for one in processes
            for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 240
        state, last_seen, ended, slowest = RunState.RUNNING, 0, 0, 0.0
        while state is RunState.RUNNING and time.monotonic() < deadline:
            began = time.monotonic()
            stop.wait(0.05)
            with suppress(Unavailable):
                steps.reap_all(processes[0])
                steps.produce_all(processes[0])
                with processes[0].store.begin() as tx:
                    state, new = tx.runs.get(run.id).state, tx.events.read(run.id, after=last_seen)
                if len(new) >= PROGRESS:
                    last_seen += len(new)
                    ended += cut(database)
            slowest = max(slowest, time.monotonic() - began)
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert not errors, (len(errors), errors[:3])
    assert ended > 5
    with ctx.store.begin() as tx:
        final, events = tx.runs.get(run.id), tx.events.read(run.id, limit=10_000)
        [account] = tx.completions.accounts(run.id)
    assert final.state is RunState.FINISHED
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert sorted(e.data["proposal"] for e in events if e.kind in SETTLING) == list(range(BUDGET))
    assert (account.completions, final.tokens) == (2 * BUDGET, model.asked * TOKENS)
    held_up = slowest > LEASE_SECONDS / 3  # leases may have run out, and others gone to work
    assert held_up or model.asked == account.completions
