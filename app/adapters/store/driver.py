"""Hot statements, straight to the driver.

SQLAlchemy keeps the connections, the transactions and everything that runs now and then.  What runs
for every proposal skips its compilation and result machinery, which costs a multiple of the
statement: see `docs/decisions/hot-statements.md`.
"""

import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy import Connection


def rows(c: Connection, statement: str, params: Mapping[str, Any]) -> list[Any]:
    """Runs a statement within the connection's transaction; returns its rows as named tuples.

    Args:
      c: The connection.
      statement: SQL with `%(name)s` where a value goes.
      params: The values by name.
    """
    with _driver(c).cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(statement, params).fetchall()


def row(c: Connection, statement: str, params: Mapping[str, Any]) -> Any:
    """Returns the first row, or None; see `rows`."""
    with _driver(c).cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(statement, params).fetchone()


def value(c: Connection, statement: str, params: Mapping[str, Any]) -> Any:
    """Returns the first column of the first row, or None; see `rows`."""
    with _driver(c).cursor() as cursor:
        first = cursor.execute(statement, params).fetchone()
        return first[0] if first else None


def values(c: Connection, statement: str, params: Mapping[str, Any]) -> list[Any]:
    """Returns the first column of every row; see `rows`."""
    with _driver(c).cursor() as cursor:
        return [record[0] for record in cursor.execute(statement, params)]


def stream(c: Connection, statement: str, params: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the first column of every row, of which few are held at once; see `rows`."""
    with _driver(c).cursor("streamed") as cursor:
        cursor.itersize = 500
        for record in cursor.execute(statement, params):
            yield record[0]


def write(c: Connection, statement: str, params: Mapping[str, Any]) -> int:
    """Runs a statement that returns nothing; returns how many rows it wrote."""
    with _driver(c).cursor() as cursor:
        return cursor.execute(statement, params).rowcount


def rows_later(c: Connection, statement: str, params: Mapping[str, Any]) -> Callable[[], list[Any]]:
    """Runs a statement in a pipeline; returns a function that gives its rows after the end."""
    cursor = _driver(c).cursor(row_factory=namedtuple_row)
    cursor.execute(statement, params)
    return cursor.fetchall


def pipeline(c: Connection) -> AbstractContextManager[object]:
    """Sends statements without waiting for their results; errors are raised at the end."""
    return _driver(c).pipeline()


def commit(c: Connection) -> None:
    """Commits as part of a pipeline; SQLAlchemy still holds the transaction, and ends it."""
    driver = _driver(c)
    _send_all(driver.pgconn)
    driver.commit()


def _send_all(connection: psycopg.pq.abc.PGconn) -> None:
    """Sends what libpq still holds of a pipeline's statements.

    The driver tries once, and then waits for an answer: to a statement larger than the buffers of
    the socket (1 to 2 MB) that would be for ever, with the transaction's locks.
    """
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN | select.POLLOUT)
    while connection.flush():
        if any(event & select.POLLIN for _, event in poll.poll()):
            connection.consume_input()


def _driver(c: Connection) -> psycopg.Connection[Any]:
    driver = c.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver
