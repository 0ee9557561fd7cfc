"""Statements without the driver's cursors: what goes in, what comes out, and what is kept."""

import _thread
import math
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import make_url

from app.adapters.store.driver import DriverConnection, connect
from app.domain.search.cohort import State
from tests.integration.worker_double import until

_KEPT = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %(text)s"


@pytest.fixture
def c(database: str) -> Iterator[DriverConnection]:
    address = make_url(database).set(drivername="postgresql").render_as_string(False)
    with closing(connect([address], {"prepare_threshold": 1})) as connection:
        yield connection


def end(c: DriverConnection, database: str) -> None:
    pid = c.value("SELECT pg_backend_pid()", {})
    with psycopg.connect(database.replace("+psycopg", "")) as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))


def test_values_of_all_kinds_arrive_and_come_back_under_their_names(c: DriverConnection) -> None:
    statement = """
        SELECT CAST(%(n)s AS int) AS n, %(n)s + 1 AS more, CAST(%(text)s AS text) AS text,
            CAST(%(none)s AS float8) AS none, CAST(%(ids)s AS bigint[]) AS ids,
            CAST(%(json)s AS jsonb) AS document, '100%%' AS share
    """
    params = {"n": 7, "text": "é'%s", "none": None, "ids": [1, 2**40], "json": '{"a": [1.5]}'}

    [found] = c.rows(statement, params)

    assert (found.n, found.more, found.text, found.none) == (7, 8, "é'%s", None)
    assert (found.ids, found.document, found.share) == ([1, 2**40], {"a": [1.5]}, "100%")


def test_lists_arrive_as_they_were(c: DriverConnection) -> None:
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

    [found] = c.rows(statement, lists)

    assert found.texts == texts
    assert found.numbers == lists["numbers"]
    assert (found.flags, found.none) == ([True, False], [])
    assert found.documents == [{"key": ['"', 1.5]}, []]


@pytest.mark.parametrize("element", [b"x", [1], {"a": 1}])
def test_a_list_of_what_has_another_text_in_postgres_is_refused(
    c: DriverConnection, element: object
) -> None:
    with pytest.raises(TypeError, match=f"a list with a {type(element).__name__} in it"):
        c.value("SELECT CAST(%(texts)s AS text[])", {"texts": [element]})


def test_a_statement_without_rows_gives_none_and_empty_lists(c: DriverConnection) -> None:
    nothing = "SELECT n FROM generate_series(1, 3) AS n WHERE n > %(least)s"
    assert c.row(nothing, {"least": 3}) is None
    assert c.value(nothing, {"least": 3}) is None
    assert (c.rows(nothing, {"least": 3}), c.values(nothing, {"least": 3})) == ([], [])
    assert c.values(nothing, {"least": 1}) == [2, 3]


def test_a_statement_is_prepared_once_for_each_kind_of_its_values(c: DriverConnection) -> None:
    statement = "SELECT %(value)s AS prepared_once"
    for _ in range(3):
        assert c.value(statement, {"value": 1}) == 1
        assert c.value(statement, {"value": 1.5}) == 1.5
    assert c.value(_KEPT, {"text": "%prepared_once"}) == 2


def test_statements_stay_prepared_when_a_transaction_is_rolled_back(c: DriverConnection) -> None:
    c.write("SELECT %(n)s AS kept_together", {"n": 1})
    assert c.value("SELECT %(n)s AS kept", {"n": 1}) == 1
    # The driver would forget what it prepares itself with all others.
    c.execute("SELECT 1", prepare=True)
    c.rollback()

    c.write("SELECT %(n)s AS kept_together", {"n": 2})
    assert c.value("SELECT %(n)s AS kept", {"n": 2}) == 2
    assert c.value(_KEPT, {"text": "% AS kept%"}) == 2


def test_a_fault_is_the_drivers_and_the_next_transaction_works(c: DriverConnection) -> None:
    divide = "SELECT 1 / CAST(%(by)s AS int)"
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
        c.value(divide, {"by": 0})
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        c.value(divide, {"by": 1})
    c.rollback()
    assert c.value(divide, {"by": 1}) == 1


def test_a_statement_that_cannot_be_prepared_raises_the_same_each_time(c: DriverConnection) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
            c.rows("SELECT * FROM nowhere", {})
        c.rollback()


def test_what_is_written_is_counted_and_lost_with_its_transaction(c: DriverConnection) -> None:
    c.write("CREATE TEMPORARY TABLE counted (n int)", {})
    c.commit()
    fill = "INSERT INTO counted SELECT generate_series(1, %(n)s)"
    assert c.write(fill, {"n": 3}) == 3
    c.write(fill, {"n": 2})
    c.rollback()
    assert c.value("SELECT count(*) FROM counted", {}) == 0


def test_one_statement_with_its_commit_is_a_transaction(c: DriverConnection) -> None:
    c.write("CREATE TEMPORARY TABLE alone (n int)", {})
    c.commit()
    c.write("INSERT INTO alone VALUES (%(n)s)", {"n": 5})
    c.commit()
    c.rollback()
    assert c.values("SELECT n FROM alone", {}) == [5]


def test_a_cursor_of_the_driver_is_in_the_same_transaction(c: DriverConnection) -> None:
    c.write("CREATE TEMPORARY TABLE ordered (n int)", {})
    c.write("INSERT INTO ordered VALUES (%(n)s)", {"n": 7})
    assert c.execute("SELECT max(n) FROM ordered").fetchone() == (7,)
    c.write("INSERT INTO ordered VALUES (%(n)s)", {"n": 8})
    assert list(c.stream("SELECT n FROM ordered ORDER BY n DESC", {})) == [8, 7]


def test_a_fault_among_statements_commits_none_of_them(c: DriverConnection) -> None:
    c.write("CREATE TEMPORARY TABLE refused (n int CHECK (n < 3))", {})
    c.commit()
    fill = "INSERT INTO refused VALUES (%(n)s)"
    c.write(fill, {"n": 1})
    with pytest.raises(psycopg.errors.CheckViolation):
        c.write(fill, {"n": 5})
    c.rollback()
    assert c.values("SELECT n FROM refused", {}) == []
    assert c.write(fill, {"n": 2}) == 1


def test_a_statement_on_a_connection_that_the_server_ended_is_an_operational_error(
    c: DriverConnection, database: str
) -> None:
    end(c, database)
    with pytest.raises(psycopg.OperationalError):
        c.value("SELECT pg_backend_pid()", {})
    assert c.closed


def test_an_interrupt_ends_a_statement_that_waits(c: DriverConnection, database: str) -> None:
    asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
    pid = c.value("SELECT pg_backend_pid()", {})

    def interrupt() -> None:
        with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as other:
            until(lambda: other.execute(asleep, (pid,)).fetchone() is not None, what="the sleep")
        # The server waits; this process has sent the statement, and may not wait for it yet.
        time.sleep(0.3)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        c.value("SELECT pg_sleep(%(seconds)s)", {"seconds": 60})
    assert time.monotonic() - began < 30
    c.rollback()
    assert c.value("SELECT %(n)s", {"n": 1}) == 1
