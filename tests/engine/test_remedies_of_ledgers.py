"""The advice of errors about a ledger and a queue, carried out on real ones."""

from dataclasses import replace

import psycopg
import pytest

from app.adapters.store import schema
from app.adapters.store.sql import SqlStore
from app.bootstrap.worker import worker_context
from app.client import target as targets
from app.domain.run import Run
from app.ports.protocols import Misconfigured
from tests.engine.conftest import new_run
from tests.engine.toy import problem


def test_a_queue_that_runs_at_the_address_ends_its_refusal(valkey: str) -> None:
    with pytest.raises(targets.CommandError, match="Start Redis, or correct the address"):
        targets.require_queue("redis://127.0.0.1:9/0")

    targets.require_queue(valkey)


def test_a_worker_with_the_ledgers_address_has_a_context(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EVOQ_DATABASE_URL", "EVOQ_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Misconfigured, match="EVOQ_DATABASE_URL is not set: give the ledger"):
        worker_context()

    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    worker_context().store.close()


def test_another_database_takes_the_place_of_one_of_another_version(
    empty_database: str, database: str
) -> None:
    schema.upgrade(empty_database)
    with psycopg.connect(empty_database.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    with pytest.raises(Misconfigured, match="use that version, or another database"):
        schema.upgrade(empty_database)

    schema.upgrade(database)


def test_a_run_has_another_name_than_those_that_exist_or_is_resumed(store: SqlStore) -> None:
    def create(name: str) -> Run:
        with store.begin() as tx:
            tx.problems.add(problem())
            return tx.runs.add(replace(new_run(problem()), name=name))

    first = create("first")
    with pytest.raises(ValueError, match="'first' exists; choose another --name or resume it"):
        create("first")

    assert create("second").id != first.id
    assert targets.find_run(store, "first").id == first.id
