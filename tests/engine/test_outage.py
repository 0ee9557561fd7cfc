"""A ledger that is away for a moment: steps wait for it instead of losing their messages."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url
from sqlalchemy.exc import OperationalError

from app.adapters.store import outage
from app.adapters.store.outage import Looks, Outage, silence_noted
from app.adapters.store.sql import SqlStore


class Away:
    """A server that refuses so many connections."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals

    def __call__(self) -> str:
        if self.left:
            self.left -= 1
            raise OperationalError("connect", None, OSError("nobody listens\nIs it up?"))
        return "a connection"


def test_a_server_that_comes_back_within_the_patience_is_waited_for() -> None:
    assert Outage(30.0, again_seconds=0.0).outlast(Away(5)) == "a connection"


def test_an_outage_that_lasts_raises_the_error_of_the_server() -> None:
    with pytest.raises(OperationalError, match="nobody listens"):
        Outage(0.05, again_seconds=0.01).outlast(Away(1000))


@pytest.mark.parametrize("wrong", ["password", "database"])
def test_a_server_that_refuses_the_address_is_not_waited_for(postgres: str, wrong: str) -> None:
    address = make_url(postgres).set(**{wrong: "nobody-of-ours"})
    store = SqlStore(address.render_as_string(hide_password=False))
    attempts = 0

    def connect() -> object:
        nonlocal attempts
        attempts += 1
        return store._engine.connect()

    with pytest.raises(OperationalError, match=r"password authentication failed|does not exist"):
        Outage(3600.0, again_seconds=0.0).outlast(connect)
    store.close()

    assert attempts == 1


@pytest.mark.parametrize(
    "said",
    [
        "SSL error: certificate verify failed",
        'server certificate for "a" does not match host name "b"',
        'root certificate file "/ca" does not exist',
        "server does not support SSL, but SSL was required",
    ],
)
def test_a_certificate_that_stays_wrong_is_not_waited_for(said: str) -> None:
    attempts: list[str] = []

    def connect() -> object:
        attempts.append(said)
        raise OperationalError("", {}, Exception(said))

    with pytest.raises(OperationalError):
        Outage(3600.0, again_seconds=0.0).outlast(connect)

    assert attempts == [said]


def test_without_patience_no_step_waits() -> None:
    away = Away(1)

    with pytest.raises(OperationalError):
        Outage(0.0).outlast(away)
    assert away() == "a connection"


def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(30.0, again_seconds=0.0)

    with caplog.at_level(logging.WARNING):
        outage.outlast(Away(5))
        outage.outlast(Away(0))

    ours = [record for record in caplog.records if record.name == "app.adapters.store.outage"]
    assert [record.getMessage() for record in ours] == [
        "the database does not answer, waiting for it: nobody listens",
        "the database answers again",
    ]


def test_a_transaction_waits_for_a_server_that_is_not_there_yet(
    database: str, tmp_path: Path
) -> None:
    address = make_url(database)
    sockets, later = address.query["host"], tmp_path / "s"
    store = SqlStore(_at(address, later), patience_seconds=120.0)
    began = threading.Event()

    def step() -> None:
        with store.begin() as tx:
            tx.runs.running()
            began.set()

    waiting = threading.Thread(target=step)
    waiting.start()
    try:
        assert not began.wait(1.0)
    finally:
        later.symlink_to(str(sockets))
        waiting.join(120.0)
    assert began.is_set()
    store.close()


def _at(address: URL, sockets: Path) -> str:
    return address.set(query={"host": str(sockets)}).render_as_string(hide_password=False)


@contextmanager
def frozen() -> Iterator[str]:
    """A server that accepts connections and says nothing, as a frozen one; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"postgresql+psycopg://evoqueue:secret@127.0.0.1:{server.getsockname()[1]}/evoqueue"


def test_a_silent_server_is_noted_while_a_command_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outage, "LOOK_SECONDS", 0.01)
    lines: list[str] = []
    noted = threading.Event()

    def note(line: str) -> None:
        lines.append(line)
        noted.set()

    with frozen() as address, silence_noted(address, note):
        assert noted.wait(120.0)

    assert lines == ["the database does not answer: waiting for it"]


def test_a_server_that_answers_or_refuses_is_not_noted(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may keep the server from answering for a while.
    monkeypatch.setattr(outage, "SILENT_SECONDS", 60)
    refused = make_url(postgres).set(database="nobody-of-ours")

    for address in (make_url(postgres), refused):
        looks = Looks(address.set(drivername="postgresql").render_as_string(hide_password=False))
        with closing(looks):
            assert [looks.silent() for _ in range(2)] == [False, False]


@pytest.mark.timing
def test_one_connection_shows_a_server_that_is_frozen_later(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "SILENT_SECONDS", 1)
    address = make_url(postgres).set(drivername="postgresql")
    with closing(Looks(address.render_as_string(hide_password=False))) as looks:
        assert not looks.silent()
        kept = looks._connection
        assert kept is not None
        assert not looks.silent()
        assert looks._connection is kept
        process = kept.info.backend_pid
        os.kill(process, signal.SIGSTOP)
        try:
            assert looks.silent()
        finally:
            os.kill(process, signal.SIGCONT)
        assert not looks.silent()


def test_a_server_that_answers_again_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter([False, True, True, False, False])
    done = threading.Event()
    lines: list[str] = []

    def silent() -> bool:
        state = next(states, None)
        if state is None:
            done.set()
        return bool(state)

    monkeypatch.setattr(outage, "LOOK_SECONDS", 0.0)
    looks = Looks("")
    monkeypatch.setattr(looks, "silent", silent)

    outage._look(looks, lines.append, done)

    assert lines == [
        "the database does not answer: waiting for it",
        "the database answers again",
    ]
