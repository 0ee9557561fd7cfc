"""Fixtures every test may use: real servers, started once a session, stopped with it."""

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
import redis
import redis.asyncio
from fakeredis import FakeAsyncRedis, FakeRedis, FakeServer
from hypothesis import HealthCheck, settings
from sqlalchemy import make_url

from app.adapters.store import schema
from app.adapters.store.sql import SqlStore
from app.adapters.store.tables import metadata
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.valkey import EmbeddedValkey
from tests.contracts.attack_times import PROPERTY, listing

pytest_plugins = ["tests.groups"]


def pytest_configure() -> None:
    """Stops ignoring signals, as a process in the background does, and with it what tests start.

    Stacks have the priority of the tests beside them, whose deadlines they share.
    """
    os.environ.setdefault("EVOQ_NICE", "0")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for no garbage among the tests, which stay: that took a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists how the attacks of `make attacks` ended, and when."""
    rows = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if os.environ.get("SANDBOX_ATTACKS") == "whole" and rows:
        terminalreporter.section("attacks")
        for line in listing(rows):
            terminalreporter.line(line)


settings.register_profile(
    "shared machine",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "exploring", settings.get_profile("shared machine"), derandomize=False, max_examples=3000
)
settings.load_profile("shared machine")
"""No property fails by the time it took, or by the examples that were drawn this time: they are the
same each time.  `--hypothesis-profile=exploring` draws others, and many more.
"""


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The SQLAlchemy address of a real Postgres with a database of its own."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), durable=False)
    yield server.start()
    server.stop()


@pytest.fixture
def empty_database(postgres: str) -> str:
    """The address of a database without a schema."""
    with psycopg.connect(postgres.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS empty WITH (FORCE)")
        connection.execute("CREATE DATABASE empty")
    return make_url(postgres).set(database="empty").render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def migrated_database(postgres: str) -> str:
    """The address of a database with the ledger's tables."""
    schema.upgrade(postgres)
    return postgres


@pytest.fixture(scope="session")
def empty_ledger(migrated_database: str) -> Iterator[Callable[[], None]]:
    """Empties the ledger, over a connection of its own.

    Rows are deleted: this takes 30 ms, `TRUNCATE` 150, a migration 300, a copy of a template 600.
    The ids of earlier tests do not come again.
    """
    tables = "; ".join(f'DELETE FROM "{name}"' for name in metadata.tables)
    address = migrated_database.replace("+psycopg", "")
    opened: list[psycopg.Connection] = []

    def connection() -> psycopg.Connection:
        """Returns the connection: a new one where a test has cut the last."""
        if opened:
            with suppress(psycopg.OperationalError):
                opened[0].execute("SELECT 1")
                return opened[0]
            opened.pop().close()
        opened.append(psycopg.connect(address, autocommit=True))
        opened[0].execute("SET lock_timeout = '20s'")
        opened[0].execute("SET session_replication_role = replica")  # no checks of foreign keys
        return opened[0]

    def empty() -> None:
        connection().execute(tables)

    yield empty
    for left in opened:
        left.close()


@pytest.fixture
def database(migrated_database: str, empty_ledger: Callable[[], None]) -> str:
    """The address of a database with an empty ledger."""
    empty_ledger()
    return migrated_database


@pytest.fixture(scope="session")
def open_store(migrated_database: str) -> Iterator[SqlStore]:
    """A ledger for the session: its statements are compiled and planned once, not for each test."""
    opened = SqlStore(migrated_database)
    yield opened
    opened.close()


@pytest.fixture
def store(database: str, open_store: SqlStore) -> SqlStore:
    """An empty ledger."""
    return open_store


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Valkey; `broker` empties it."""
    with EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as address:
        yield address


@pytest.fixture
def broker(valkey: str) -> Iterator[redis.Redis]:
    """A client of an empty Valkey."""
    with redis.Redis.from_url(valkey) as client:
        client.flushall()
        yield client


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> redis.Redis:
    """A client of an empty Redis in this process, which every address leads to.

    It has Redis's commands; what a server does besides (it starts, ends and counts) needs `valkey`.
    """
    server = FakeServer()
    monkeypatch.setattr(redis.Redis, "from_url", lambda url, **options: FakeRedis(server=server))
    monkeypatch.setattr(
        redis.asyncio.Redis, "from_url", lambda url, **options: FakeAsyncRedis(server=server)
    )
    return FakeRedis(server=server)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves the tests of a cluster to a stage of their own, which names their folder."""
    named = any("tests/kubernetes" in argument for argument in config.invocation_params.args)
    return None if named or collection_path.parts[-2:] != ("tests", "kubernetes") else True
