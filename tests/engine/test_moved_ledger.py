"""Ledgers that change under running work: another version's schema, and a restored backup."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from app.adapters.queue.inline import InlineExecutor
from app.adapters.store import migrating, schema
from app.adapters.store.sql import SqlStore
from app.domain.run import Run, RunState
from app.embedded.binaries import postgres_binaries
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from tests.engine.conftest import new_run, table
from tests.engine.executors import settled
from tests.engine.toy import problem

FIRST = "0001_ce209121"
BUDGET = 24
QUICK = Pace(lease_seconds=0.2, redeliver_seconds=0.0, retry_seconds=0.0)


@pytest.fixture
def moved(empty_database: str) -> Iterator[SqlStore]:
    """A ledger in a database of its own, which has no schema yet."""
    store = SqlStore(empty_database)
    yield store
    store.close()


def begun(ctx: Context) -> tuple[Run, InlineExecutor]:
    """Returns a run in whose middle its workers have died, each with a leased step."""
    executor = InlineExecutor()
    ctx = replace(ctx, executor=executor, pace=QUICK)
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=BUDGET, in_flight=6))

    def in_the_middle() -> bool:
        with ctx.store.begin() as tx:
            backlog = tx.proposals.backlog(run.id)
            now = tx.runs.get(run.id)
        busy = backlog.generating >= 2 and backlog.evaluating >= 1
        return busy and now.proposals - backlog.unsettled >= 5

    executor.drain(table(ctx), in_the_middle)
    with ctx.store.begin() as tx:
        proposals, trials = tx.leases.overdue(run.id, 0.0)
        assert proposals
        tx.proposals.claim(sorted(proposals)[:2], 0.2, attempts=5)
        tx.trials.claim([trial.id for trial in trials[:1]], 0.2, attempts=5)
    return run, executor


def go_on(ctx: Context, run: Run) -> None:
    """Works on a run with an empty queue, as fresh workers and beat do."""
    executor = InlineExecutor()
    ctx = replace(ctx, executor=executor, pace=QUICK)
    for _ in range(200):
        steps.reap_all(ctx)
        steps.produce_all(ctx)
        executor.drain(table(ctx), lambda: False)
        with ctx.store.begin() as tx:
            if tx.runs.get(run.id).state is not RunState.RUNNING:
                return
        ctx.process.wait(0.05)


def reached_its_budget(ctx: Context, run: Run) -> bool:
    with ctx.store.begin() as tx:
        now = tx.runs.get(run.id)
    ordinals = [ordinal for ordinal in settled(ctx, run) if ordinal >= 0]
    return now.state is RunState.FINISHED and ordinals == list(range(BUDGET))


def test_a_run_in_progress_goes_on_after_an_upgrade_from_the_first_schema(
    ctx: Context, moved: SqlStore, empty_database: str
):
    schema.upgrade(empty_database)
    ctx = replace(ctx, store=moved)
    run, _ = begun(ctx)
    moved.close()
    # All rows stay, so this is what a version of the first schema has left.
    migrating.downgrade(empty_database, FIRST)
    found = schema.version(empty_database)
    assert (found.found, found.current) == (FIRST, False)
    assert "alembic upgrade head" in found.remedy

    schema.upgrade(empty_database)
    go_on(ctx, run)

    assert schema.version(empty_database).current
    assert reached_its_budget(ctx, run)


def test_a_run_in_progress_goes_on_from_a_backup(
    ctx: Context, moved: SqlStore, database: str, empty_database: str, tmp_path: Path
):
    run, executor = begun(ctx)
    dump = tmp_path / "ledger.dump"
    with dump.open("wb") as file:
        subprocess.run([*_client(database, "pg_dump"), "-Fc"], check=True, stdout=file)
    # The ledger that the backup was made of goes on, and so differs from it.
    executor.drain(table(replace(ctx, executor=executor, pace=QUICK)), lambda: False)

    restore = [*_client(empty_database, "pg_restore"), "--no-owner", "--exit-on-error"]
    subprocess.run([*restore, str(dump)], check=True)
    restored = replace(ctx, store=moved)
    with psycopg.connect(empty_database.replace("+psycopg", "")) as c:
        [(before,)] = c.execute(
            "SELECT count(*) FROM proposals WHERE settled_at IS NOT NULL"
        ).fetchall()
    go_on(restored, run)

    assert 5 <= before < BUDGET
    assert reached_its_budget(restored, run)


def _client(address: str, program: str) -> list[str]:
    url = make_url(address)
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return [str(postgres_binaries() / program), "-d", plain]
