"""Servers that a busy machine holds up for some seconds are not taken for ones that are down."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from app.adapters.store import outage, schema
from app.adapters.store.schema import version
from app.cli.application import status_of
from app.client.target import require_queue
from app.embedded.children import read_record
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.valkey import EmbeddedValkey
from tests.integration.worker_double import until

pytestmark = pytest.mark.timing

SECONDS = 6.0


@contextmanager
def held_up(record: Path) -> Iterator[None]:
    """Stops a server, lets it go on after `SECONDS`, and ends when it does."""
    identity = read_record(record)
    assert identity is not None
    os.kill(identity.pid, signal.SIGSTOP)
    server = psutil.Process(identity.pid)
    until(lambda: server.status() == psutil.STATUS_STOPPED, what="its stop")
    going_on = threading.Timer(SECONDS, os.kill, (identity.pid, signal.SIGCONT))
    going_on.start()
    yield
    going_on.join()


@pytest.mark.slow
def test_a_queue_that_is_held_up_is_found(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as address, held_up(tmp_path / "valkey.pid"):
        require_queue(address)


@pytest.mark.slow
def test_the_schema_of_a_database_that_is_held_up_is_read(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path, durable=False) as address, held_up(tmp_path / "postgres.pid"):
        assert version(address).found is None


def test_a_command_says_that_it_waits_for_a_frozen_database(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outage, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(schema, "CONNECT_SECONDS", 600)
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")
    printed: list[str] = []

    def shown(line: str) -> bool:
        printed.append(capsys.readouterr().err)
        return line in "".join(printed)

    with socket.create_server(("127.0.0.1", 0)) as server:  # it accepts, and says nothing
        port = server.getsockname()[1]
        monkeypatch.setenv("EVOQ_DATABASE_URL", f"postgresql://evoqueue@127.0.0.1:{port}/evoqueue")
        command = threading.Thread(target=status_of, args=(["list-runs"],))
        command.start()
        until(lambda: shown("the database does not answer: waiting for it"), what="the line")
    command.join()

    assert shown("the database: ")
