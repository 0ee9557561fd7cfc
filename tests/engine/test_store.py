"""The ledger's own promises: compare-and-sets, bounded draws, constraints, schema versions."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg.errors import CheckViolation, ProgramLimitExceeded
from sqlalchemy import create_engine, text

from app.adapters.store import migrating, schema
from app.adapters.store.archive import _BRED
from app.adapters.store.sql import SqlStore
from app.adapters.store.tables import metadata
from app.domain.events import Noticed
from app.domain.program import Program, fingerprint
from app.domain.search.archive import Cell, Elite
from app.domain.search.budget import Budget
from app.engine.context import Context
from app.ports.cohorts import Plan
from app.ports.protocols import Misconfigured, Unavailable, Unwritable
from tests.contracts.store import StoreContract, a_run
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import problem
from tests.integration.worker_double import until


class TestSqlStore(StoreContract):
    @pytest.fixture
    def store(self, store: SqlStore) -> SqlStore:
        return store

    @pytest.fixture
    def unreachable(self) -> Iterator[SqlStore]:
        opened = SqlStore("postgresql+psycopg://nobody@127.0.0.1:1/nowhere", wait_seconds=1.0)
        yield opened
        opened.close()


@pytest.mark.timeout(60)
def test_a_transaction_larger_than_the_buffers_of_a_socket_is_committed(ctx: Context) -> None:
    run = run_to_the_end(ctx, problem(), new_run(problem()))
    with ctx.store.begin() as tx:
        before = tx.runs.get(run).events
        for _ in range(4):
            tx.events.emit(run, Noticed(text="x" * 2**20))

    with ctx.store.begin() as tx:
        assert len(tx.events.read(run, after=before)) == 4


def test_a_run_keeps_each_of_its_caps_and_those_it_is_resumed_with(store: SqlStore) -> None:
    caps, later = Budget(70, 8.0, 9000, 1.5), Budget(80, 9.0, 9500, 2.5)
    toy = problem()
    with store.begin() as tx:
        tx.problems.add(toy)
        run = tx.runs.add(replace(new_run(toy), budget=caps)).id

    with store.begin() as tx:
        assert tx.runs.get(run).budget == caps
        tx.runs.set_budget(run, later)
    with store.begin() as tx:
        assert tx.runs.get(run).budget == later


def test_a_cell_key_that_is_too_long_is_refused_by_a_named_constraint(store: SqlStore) -> None:
    run = a_run(store)
    key = tuple(Random(1).random() for _ in range(300))
    program = Program("x = 1\n")
    with store.begin() as tx:
        tx.programs.put([program])
    with pytest.raises(CheckViolation, match="elites_cell_is_short"), store.begin() as tx:
        tx.archive.put_cell(run, 0, Cell(key, (Elite(program.id, 1.0, 5, 1, key),)))


def test_children_of_a_seed_in_other_runs_are_not_read(ctx: Context, database: str) -> None:
    toy = problem()
    for name in ("other", "counted"):
        run = run_to_the_end(ctx, toy, replace(new_run(toy, islands=1), name=name))
    values = {"run": run, "island": 0, "n": 50, "most": 1000}
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        lines = connection.execute(f"EXPLAIN (ANALYZE) {_BRED}", values).fetchall()
    plan = "\n".join(line for (line,) in lines)
    assert "using proposals_of_parent" in plan
    assert "Rows Removed by Filter" not in plan


def test_what_exceeds_a_limit_of_postgres_is_no_outage(store: SqlStore) -> None:
    run = a_run(store)
    fingerprint = "".join(Random(1).choices("abcdefghij", k=9000))
    with pytest.raises(ProgramLimitExceeded, match="index row requires"), store.begin() as tx:
        tx.programs.claim_fingerprints(run, [(0, fingerprint)])


def test_a_claim_is_taken_by_an_earlier_program_and_not_by_its_own(
    ctx: Context, store: SqlStore, database: str
) -> None:
    toy = problem()
    run = run_to_the_end(ctx, toy, new_run(toy))
    entered = "SELECT id, program FROM proposals WHERE program IS NOT NULL ORDER BY id DESC LIMIT 1"
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        [(own, program)] = connection.execute(entered).fetchall()
    with store.begin() as tx:
        digest = fingerprint(tx.programs.get([program])[program])
        claims = [(own, 0, digest), (2**40, 0, digest), (2**40, 9, digest), (2**40, 0, "new")]
        assert tx.programs.are_taken(run, claims) == [False, True, False, False]
        assert tx.programs.are_taken(run, []) == []


def test_the_database_itself_refuses_to_plan_beyond_the_budget(store: SqlStore) -> None:
    run = a_run(store, budget=2)
    with pytest.raises(CheckViolation, match="runs_budget_is_a_cap"), store.begin() as tx:
        tx.cohorts.add(run, [Plan(0, "nudge", (0, 1, 2))], redeliver_seconds=30)


def test_a_program_with_a_nul_in_its_failure_is_stored(store: SqlStore) -> None:
    from app.adapters.store.codec import clean

    assert clean("a\x00b\ud800") == "a\ufffdb?"


def end_connections(database: str) -> None:
    everyone_else = (
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND application_name = 'evoqueue'"
    )
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        connection.execute(everyone_else)


def test_a_connection_the_server_ended_is_unavailable_and_the_next_one_works(
    store: SqlStore, database: str
) -> None:
    def ended() -> None:
        with store.begin() as tx:
            tx.runs.running()
            end_connections(database)
            tx.runs.named("anything")

    with pytest.raises(Unavailable, match="database"):
        ended()
    with store.begin() as tx:
        tx.problems.add(problem())


def test_a_ledger_without_room_is_distinguished_from_one_that_is_out_of_reach(
    store: SqlStore,
) -> None:
    full = "DO $$ BEGIN RAISE EXCEPTION 'No space left' USING ERRCODE = 'disk_full'; END $$"
    with pytest.raises(Unwritable, match="No space left"), store.begin() as tx:
        tx.leases._c.execute(full)  # type: ignore[attr-defined]
    with store.begin() as tx:
        tx.problems.add(problem())


@pytest.mark.timing
def test_a_process_that_is_frozen_loses_its_locks(store: SqlStore, database: str) -> None:
    run = a_run(store)
    hasty = SqlStore(database, idle_seconds=0.3)

    def frozen() -> None:
        with hasty.begin() as tx:
            tx.archive.islands(run, lock=True)
            with store.begin() as other:
                other.archive.islands(run, lock=True)
            tx.runs.get(run)

    def looked() -> bool:
        """Fails unless it works, or this process did not get to its next statement in time."""
        began = time.monotonic()
        try:
            with hasty.begin() as tx:
                return tx.runs.get(run).id == run
        except Unavailable:
            if time.monotonic() - began < 0.3:
                raise
            return False

    with pytest.raises(Unavailable, match="idle-in-transaction timeout"):
        frozen()
    until(looked, what="a transaction that was not held up")
    hasty.close()


def test_connections_that_ended_while_they_were_idle_are_replaced(
    store: SqlStore, database: str
) -> None:
    with store.begin() as one, store.begin() as two:
        one.runs.running()
        two.runs.running()
    end_connections(database)
    with store.begin() as one, store.begin() as two:
        assert one.runs.running() == two.runs.running() == []


def test_the_schema_goes_up_and_down_again(empty_database: str) -> None:
    assert schema.version(empty_database).found is None
    schema.upgrade(empty_database)
    schema.upgrade(empty_database)
    assert schema.version(empty_database).current
    migrating.downgrade(empty_database, "base")
    assert schema.version(empty_database).found is None
    schema.upgrade(empty_database)
    assert schema.version(empty_database).current


def test_alembic_upgrades_the_database_that_the_variable_names(
    database: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVOQ_DATABASE_URL", raising=False)
    config = Config(str(repository / "alembic.ini"))
    with pytest.raises(SystemExit, match="set EVOQ_DATABASE_URL to the database's address"):
        command.upgrade(config, "head")

    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    command.upgrade(config, "head")
    assert schema.version(database).current


def test_the_schema_that_is_needed_is_that_of_the_last_migration(repository: Path) -> None:
    scripts = ScriptDirectory(str(repository / "app/adapters/store/migrations"))
    assert scripts.get_revision(schema.NEEDED).is_head
    first = scripts.get_revision(scripts.get_base())
    statements = "\n".join(first.module._UP).encode()
    assert f"0001_{hashlib.sha256(statements).hexdigest()[:8]}" == first.revision


def test_a_schema_of_another_version_is_not_migrated_blindly(empty_database: str) -> None:
    schema.upgrade(empty_database)
    with psycopg.connect(empty_database.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    found = schema.version(empty_database)
    assert (found.found, found.current) == ("0999", False)
    assert "use that version, or another database" in found.remedy
    with pytest.raises(Misconfigured, match=r"another version of evoq.*0999"):
        schema.upgrade(empty_database)


def test_the_migrations_build_what_the_tables_say(database: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = create_engine(database)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        constraints = connection.execute(
            text("SELECT conname FROM pg_constraint WHERE conrelid = 'runs'::regclass")
        ).scalars()
        assert "runs_budget_is_a_cap" in set(constraints)
    engine.dispose()
