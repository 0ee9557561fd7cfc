"""Statements without the driver's cursors: what goes in, what comes out, and what is kept."""

import _thread
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, create_engine, event, text

from app.adapters.store.driver import (
    commit,
    connect,
    count,
    row,
    rows,
    rows_later,
    value,
    values,
    write,
)
from app.domain.search.cohort import State

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


def end(c: Connection, database: str) -> None:
    pid = value(c, "SELECT pg_backend_pid()", {})
    with psycopg.connect(database.replace("+psycopg", "")) as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))


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


def test_lists_arrive_as_they_were(c: Connection) -> None:
    statement = """
        SELECT CAST(%(texts)s AS text[]) AS texts, CAST(%(numbers)s AS float8[]) AS numbers,
            CAST(%(flags)s AS bool[]) AS flags, CAST(%(none)s AS int[]) AS none,
            CAST(%(documents)s AS jsonb[]) AS documents
    """
    texts = ["", "NULL", 'a "b"', "c\\d", "{e,f}", " g\n", "é𝄞", None, State.CUT]
    lists = {
        "texts": texts,
        "numbers": [1.5, -1e-300, 7, math.inf, None],
        "flags": [True, False],
        "none": [],
        "documents": ['{"key": ["\\"", 1.5]}', "[]"],
    }

    [found] = rows(c, statement, lists)

    assert found.texts == texts
    assert found.numbers == lists["numbers"]
    assert (found.flags, found.none) == ([True, False], [])
    assert found.documents == [{"key": ['"', 1.5]}, []]


@pytest.mark.parametrize("element", [b"x", [1], {"a": 1}])
def test_a_list_of_what_has_another_text_in_postgres_is_refused(
    c: Connection, element: object
) -> None:
    with pytest.raises(TypeError, match=f"a list with a {type(element).__name__} in it"):
        value(c, "SELECT CAST(%(texts)s AS text[])", {"texts": [element]})


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
    write(c, "SELECT %(n)s AS kept_together", {"n": 1})
    assert value(c, "SELECT %(n)s AS kept", {"n": 1}) == 1
    driver_of(c).execute("SELECT 1", prepare=True)  # which the driver would forget with all others
    driver_of(c).rollback()

    write(c, "SELECT %(n)s AS kept_together", {"n": 2})
    assert value(c, "SELECT %(n)s AS kept", {"n": 2}) == 2
    assert value(c, _KEPT, {"text": "% AS kept%"}) == 2


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
    commit(c)
    fill = "INSERT INTO counted SELECT generate_series(1, %(n)s)"
    assert count(c, fill, {"n": 3}) == 3
    write(c, fill, {"n": 2})
    driver_of(c).rollback()
    assert value(c, "SELECT count(*) FROM counted", {}) == 0


def test_statements_that_are_postponed_are_committed_in_one_go(c: Connection) -> None:
    write(c, "CREATE TEMPORARY TABLE filled (n int)", {})
    write(c, "INSERT INTO filled VALUES (%(n)s)", {"n": 5})
    read = rows_later(c, "SELECT n + 1 AS next FROM filled", {})
    commit(c)
    [found] = read()
    assert found.next == 6
    driver_of(c).rollback()  # there is nothing left to roll back
    assert values(c, "SELECT n FROM filled", {}) == [5]


def test_one_statement_with_its_commit_is_a_transaction(c: Connection) -> None:
    write(c, "CREATE TEMPORARY TABLE alone (n int)", {})
    commit(c)
    write(c, "INSERT INTO alone VALUES (%(n)s)", {"n": 5})
    commit(c)
    driver_of(c).rollback()
    assert values(c, "SELECT n FROM alone", {}) == [5]


def test_what_is_postponed_comes_before_what_is_awaited(c: Connection) -> None:
    write(c, "CREATE TEMPORARY TABLE ordered (n int)", {})
    write(c, "INSERT INTO ordered VALUES (%(n)s)", {"n": 7})
    assert value(c, "SELECT max(n) FROM ordered", {}) == 7
    write(c, "INSERT INTO ordered VALUES (%(n)s)", {"n": 8})
    assert c.execute(text("SELECT max(n) FROM ordered")).scalar() == 8
    least = rows_later(c, "SELECT min(n) AS n FROM ordered", {})
    write(c, "DELETE FROM ordered", {})
    assert least()[0].n == 7
    commit(c)
    assert values(c, "SELECT n FROM ordered", {}) == []


def test_a_fault_among_statements_sent_together_commits_none_of_them(c: Connection) -> None:
    write(c, "CREATE TEMPORARY TABLE refused (n int CHECK (n < 3))", {})
    commit(c)
    fill = "INSERT INTO refused VALUES (%(n)s)"
    for n in (1, 5, 2):
        write(c, fill, {"n": n})
    with pytest.raises(psycopg.errors.CheckViolation):
        commit(c)
    driver_of(c).rollback()
    assert values(c, "SELECT n FROM refused", {}) == []
    assert count(c, fill, {"n": 2}) == 1


def test_what_is_postponed_on_a_connection_that_ended_is_an_operational_error(
    c: Connection, database: str
) -> None:
    end(c, database)
    write(c, "SELECT %(n)s", {"n": 1})
    with pytest.raises(psycopg.OperationalError):
        commit(c)
    assert driver_of(c).closed
    c.invalidate()


def test_a_statement_on_a_connection_that_the_server_ended_is_an_operational_error(
    c: Connection, database: str
) -> None:
    end(c, database)
    with pytest.raises(psycopg.OperationalError):
        value(c, "SELECT pg_backend_pid()", {})
    c.invalidate()


@pytest.mark.parametrize("at_once", [False, True])
def test_an_interrupt_ends_a_statement_that_waits(c: Connection, at_once: bool) -> None:
    threading.Timer(0.3, _thread.interrupt_main).start()
    began = time.monotonic()
    if at_once:
        write(c, "SELECT %(n)s", {"n": 1})
    with pytest.raises(KeyboardInterrupt):
        value(c, "SELECT pg_sleep(%(seconds)s)", {"seconds": 60})
    assert time.monotonic() - began < 30
    if driver_of(c).closed:  # between two results
        c.invalidate()
        return
    driver_of(c).rollback()
    assert value(c, "SELECT %(n)s", {"n": 1}) == 1
