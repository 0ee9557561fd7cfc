"""A ledger behind PgBouncer, which gives each transaction any of two sessions."""

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from app.adapters.store.leases import CHANNEL
from app.adapters.store.sql import SqlStore
from app.domain.run import RunState
from app.engine import lifecycle
from app.engine.context import Context, Pace
from tests.engine.conftest import new_run
from tests.engine.executors import UnreliableQueue, served, settled
from tests.engine.toy import problem
from tests.pooler import SESSIONS, pooler


@pytest.fixture
def pooled(database: str) -> Iterator[SqlStore]:
    with pooler(database) as address:
        store = SqlStore(address, session_url=database, connections=8, idle_seconds=30.0)
        yield store
        store.close()


def test_a_run_goes_to_its_end_with_more_threads_than_sessions(ctx: Context, pooled: SqlStore):
    queue, toy = UnreliableQueue(seed=5), problem()
    quick = Pace(lease_seconds=5.0, redeliver_seconds=0.5, retry_seconds=0.1)
    ctx = replace(ctx, store=pooled, executor=queue, pace=quick)
    run = lifecycle.start(ctx, toy, new_run(toy, budget=30, in_flight=6))

    served(queue, ctx, run, [ctx] * (2 * SESSIONS), seconds=240.0)

    with pooled.begin() as tx:
        assert tx.runs.get(run.id).state is RunState.FINISHED
    assert [ordinal for ordinal in settled(ctx, run) if ordinal >= 0] == list(range(30))


def test_the_settings_of_a_session_are_those_of_each_transaction(pooled: SqlStore, database: str):
    names = ("enable_seqscan", "plan_cache_mode", "idle_in_transaction_session_timeout")
    with pooled.begin() as tx:
        connection = tx.runs._c  # type: ignore[attr-defined]
        inside = [connection.value(f"SHOW {name}", {}) for name in names]
    with psycopg.connect(database.replace("+psycopg", "")) as plain:
        outside = [row for name in names for row in plain.execute(f"SHOW {name}")]  # type: ignore[call-overload]

    assert inside == ["off", "force_generic_plan", "30s"]
    assert [value for (value,) in outside] == ["on", "auto", "0"]


def test_notices_and_vacuums_take_a_session_of_their_own(pooled: SqlStore):
    notices = pooled.listen(CHANNEL, 10.0)
    assert next(notices)
    with pooled.begin() as tx:
        tx.leases.withdraw()
    assert next(notices)
    notices.close()  # type: ignore[attr-defined]
    pooled.vacuum()


def test_a_snapshot_is_one_through_a_pooler_too(ctx: Context, pooled: SqlStore):
    toy = problem()
    run = lifecycle.start(replace(ctx, store=pooled), toy, new_run(toy, budget=3))
    with pooled.begin(snapshot=True) as tx:
        before = len(list(tx.copies.rows(run.id)))
        with pooled.begin() as other:
            other.runs.explain(run.id, "later")
        assert tx.runs.get(run.id).reason == ""
        assert len(list(tx.copies.rows(run.id))) == before
