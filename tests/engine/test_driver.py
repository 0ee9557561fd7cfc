"""Statements without the driver's cursors: what goes in, what comes out, and what is kept."""

import _thread
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, create_engine, event

from app.adapters.store.driver import connect, pipeline, row, rows, value, values, write

_KEPT = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %(text)s"


@pytest.fixture
def c(database: str) -> Iterator[Connection]:
    engine = create_engine(database, connect_args={"prepare_threshold": 1})
    event.listen(engine, "do_connect", lambda dialect, record, a, p: connect(a, p))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def driver_of(c: Connection) -> psycopg.Connection[Any]:
    driver = c.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def test_values_of_all_kinds_arrive_and_come_back_under_their_names(c: Connection) -> None:
    statement = """
        SELECT CAST(%(n)s AS int) AS n, %(n)s + 1 AS more, CAST(%(text)s AS text) AS text,
            CAST(%(none)s AS float8) AS none, CAST(%(ids)s AS bigint[]) AS ids,
            CAST(%(json)s AS jsonb) AS document, '100%%' AS share
    """
    params = {"n": 7, "text": "é'%s", "none": None, "ids": [1, 2**40], "json": '{"a": [1.5]}'}

    [found] = rows(c, statement, params)

    assert (found.n, found.more, found.text, found.none) == (7, 8, "é'%s", None)
    assert (found.ids, found.document, found.share) == ([1, 2**40], {"a": [1.5]}, "100%")


def test_a_statement_without_rows_gives_none_and_empty_lists(c: Connection) -> None:
    nothing = "SELECT n FROM generate_series(1, 3) AS n WHERE n > %(least)s"
    assert row(c, nothing, {"least": 3}) is None
    assert value(c, nothing, {"least": 3}) is None
    assert (rows(c, nothing, {"least": 3}), values(c, nothing, {"least": 3})) == ([], [])
    assert values(c, nothing, {"least": 1}) == [2, 3]


def test_a_statement_is_prepared_once_for_each_kind_of_its_values(c: Connection) -> None:
    statement = "SELECT %(value)s AS prepared_once"
    for _ in range(3):
        assert value(c, statement, {"value": 1}) == 1
        assert value(c, statement, {"value": 1.5}) == 1.5
    assert value(c, _KEPT, {"text": "%prepared_once"}) == 2


def test_statements_stay_prepared_when_a_transaction_is_rolled_back(c: Connection) -> None:
    with pipeline(c):  # the driver prepares this one itself, and would forget all at a rollback
        write(c, "SELECT %(n)s", {"n": 1})
    assert value(c, "SELECT %(n)s AS kept", {"n": 1}) == 1
    driver_of(c).rollback()

    assert value(c, "SELECT %(n)s AS kept", {"n": 2}) == 2
    with pipeline(c):
        write(c, "SELECT %(n)s", {"n": 2})
    assert value(c, _KEPT, {"text": "% AS kept"}) == 1


def test_a_fault_is_the_drivers_and_the_next_transaction_works(c: Connection) -> None:
    divide = "SELECT 1 / CAST(%(by)s AS int)"
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
        value(c, divide, {"by": 0})
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        value(c, divide, {"by": 1})
    driver_of(c).rollback()
    assert value(c, divide, {"by": 1}) == 1


def test_a_statement_that_cannot_be_prepared_raises_the_same_each_time(c: Connection) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
            rows(c, "SELECT * FROM nowhere", {})
        driver_of(c).rollback()


def test_what_is_written_is_counted_and_lost_with_its_transaction(c: Connection) -> None:
    write(c, "CREATE TEMPORARY TABLE counted (n int)", {})
    driver_of(c).commit()
    fill = "INSERT INTO counted SELECT generate_series(1, %(n)s)"
    assert write(c, fill, {"n": 3}) == 3
    driver_of(c).rollback()
    assert value(c, "SELECT count(*) FROM counted", {}) == 0


def test_a_statement_inside_a_pipeline_has_its_rows_at_once(c: Connection) -> None:
    with pipeline(c):
        assert value(c, "SELECT %(n)s", {"n": 5}) == 5
        assert rows(c, "SELECT %(n)s AS n", {"n": 6})[0].n == 6
    assert value(c, "SELECT %(n)s", {"n": 7}) == 7


def test_a_statement_on_a_connection_that_the_server_ended_is_an_operational_error(
    c: Connection, database: str
) -> None:
    pid = value(c, "SELECT pg_backend_pid()", {})
    with psycopg.connect(database.replace("+psycopg", "")) as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
    with pytest.raises(psycopg.OperationalError):
        value(c, "SELECT pg_backend_pid()", {})
    c.invalidate()


def test_an_interrupt_ends_a_statement_that_waits(c: Connection) -> None:
    threading.Timer(0.3, _thread.interrupt_main).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        value(c, "SELECT pg_sleep(%(seconds)s)", {"seconds": 60})
    assert time.monotonic() - began < 30
    driver_of(c).rollback()
    assert value(c, "SELECT %(n)s", {"n": 1}) == 1
