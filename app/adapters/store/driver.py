"""Hot statements, straight to the driver.

SQLAlchemy keeps the connections, the transactions and everything that runs now and then.  What runs
for every proposal skips its compilation and result machinery, which costs a multiple of the
statement, and the driver's cursors: see `docs/decisions/hot-statements.md`.
"""

import itertools
import re
import select
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeAlias

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from sqlalchemy import Connection

_MakeRow: TypeAlias = Callable[[Sequence[Any]], Any]

_PLACE = re.compile(r"%\((\w+)\)s|%%")
_STATEMENTS = 512
_numbers = itertools.count()
"""Of prepared statements: a name is never used again."""
_SUCCESS = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


class DriverConnection(psycopg.Connection[Any]):
    """A connection that runs statements without a cursor.

    A cursor of the driver looks up anew, for each statement, how its parameters and columns are
    converted, which takes four times as long as all else that the client does for it.  Here these
    are kept for as long as the connection, and so are the prepared statements.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """See `psycopg.Connection`."""
        super().__init__(*args, **keywords)
        self._converter = Transformer(self)
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._makers: dict[bytes, _MakeRow] = {}
        self._queued: list[Callable[[Any], object]] | None = None

    def fetch(
        self, statement: str, params: Mapping[str, Any], make_row: _MakeRow | None = None
    ) -> list[Any]:
        """Returns the rows of a statement, made by `make_row`, or as named tuples.

        Raises:
          psycopg.Error: As a cursor does.
        """
        if self._queued is not None:
            read = self.fetch_later(statement, params, make_row)
            self._exchange()
            return read()
        name = self._send(statement, params)
        return self._rows(name, self._result(), make_row)

    def fetch_later(
        self, statement: str, params: Mapping[str, Any], make_row: _MakeRow | None = None
    ) -> Callable[[], list[Any]]:
        """Sends a statement of `together`; returns a function that gives its rows afterwards."""
        assert self._queued is not None
        name, found = self._send(statement, params), []
        self._queued.append(lambda result: found.append(self._rows(name, result, make_row)))
        return lambda: found[0]

    def write(self, statement: str, params: Mapping[str, Any]) -> int:
        """Returns how many rows a statement wrote, -1 where it is not known; see `fetch`."""
        self._send(statement, params)
        if self._queued is not None:
            self._queued.append(_nothing)
            return -1
        written = self._result().command_tuples
        return -1 if written is None else int(written)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Sends the statements of the block and a commit after them, and then waits once for all.

        Raises:
          psycopg.Error: What the first of them that failed led to; the others had no effect.
        """
        connection = self.pgconn
        connection.enter_pipeline_mode()
        self._queued = []
        try:
            yield
            self._send_command(b"COMMIT")
            self._exchange()
        except BaseException:
            if self._queued:
                with suppress(psycopg.Error):  # of the block is the one that counts
                    self._exchange()
            raise
        finally:
            self._queued = None
            try:
                connection.exit_pipeline_mode()
            except psycopg.Error:  # it has ended, or was interrupted between two results
                self.close()

    def rollback(self) -> None:
        """Ends the transaction, and keeps the prepared statements, unlike the driver's own.

        None of them names a table that a transaction made.
        """
        status = self.pgconn.transaction_status
        if status == TransactionStatus.IDLE:
            return  # as it goes back to the pool
        if status in _OPEN:
            self.pgconn.send_query(b"ROLLBACK")
            self._result()
            return
        super().rollback()
        self._names.clear()
        self._makers.clear()

    def _send(self, statement: str, params: Mapping[str, Any]) -> bytes:
        """Sends a statement, and before it what it needs; returns the name that it is kept by."""
        text, order = _numbered(statement)
        converter, connection = self._converter, self.pgconn
        values = converter.dump_sequence(
            [params[name] for name in order], [PyFormat.AUTO] * len(order)
        )
        key, formats = (text, converter.types or ()), converter.formats
        idle = connection.transaction_status == TransactionStatus.IDLE
        if idle and not self._queued and not self.autocommit:
            self._send_command(b"BEGIN")
        name = self._names.get(key)
        if name is None:
            name = b"evoqueue_%d" % next(_numbers)
            connection.send_prepare(name, *key)
            if self._queued is None:
                self._result()
                self._names[key] = name
            else:
                self._queued.append(lambda _: self._names.setdefault(key, name))
        connection.send_query_prepared(name, values, formats, Format.TEXT)
        return name

    def _send_command(self, command: bytes) -> None:
        if self._queued is None:
            self.pgconn.send_query(command)
            self._result()
        else:  # where only the protocol of prepared statements may be used
            self.pgconn.send_query_params(command, None)
            self._queued.append(_nothing)

    def _result(self) -> Any:
        """Waits for the result of what was sent; raises what a cursor would."""
        return self._succeeded(self.wait(generators.execute(self.pgconn)))

    def _exchange(self) -> None:
        """Waits for the results of all that was sent together, and hands each on."""
        queued, self._queued = self._queued or [], []
        self.pgconn.pipeline_sync()
        _send_all(self.pgconn)
        results = [self.wait(generators.fetch_many(self.pgconn)) for _ in queued]
        self.wait(generators.fetch_many(self.pgconn))  # that all have been there
        for take, each in zip(queued, results, strict=True):
            take(self._succeeded(each))

    def _succeeded(self, results: Sequence[Any]) -> Any:
        for result in results:
            if result.status not in _SUCCESS:
                raise psycopg.errors.error_from_result(result, encoding=self.info.encoding)
        return results[-1]

    def _rows(self, name: bytes, result: Any, make_row: _MakeRow | None) -> list[Any]:
        converter, count = self._converter, result.ntuples
        if not count:
            return []
        if make_row is None:
            make_row = self._makers.get(name)
            if make_row is None:
                columns = tuple((result.fname(n) or b"").decode() for n in range(result.nfields))
                make_row = self._makers[name] = _named(columns)
        converter.set_pgresult(result)
        made = converter.load_rows(0, count, make_row)
        converter.set_pgresult(None)  # which keeps no large result until the next statement
        return made


def connect(arguments: Sequence[Any], parameters: Mapping[str, Any]) -> DriverConnection:
    """Returns a new connection; takes what `psycopg.connect` does."""
    return DriverConnection.connect(*arguments, **parameters)


def _nothing(result: object) -> None:
    """Takes the result of what is only written."""


@lru_cache(_STATEMENTS)
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Returns a statement with numbers in the place of names, and the names in their order."""
    order: dict[str, int] = {}

    def numbered(place: re.Match[str]) -> str:
        return f"${order.setdefault(place[1], len(order) + 1)}" if place[1] else "%"

    return _PLACE.sub(numbered, statement).encode(), tuple(order)


@lru_cache(_STATEMENTS)
def _named(columns: tuple[str, ...]) -> _MakeRow:
    kind: Any = namedtuple("Row", columns)  # type: ignore[misc]  # known at run time only
    make: _MakeRow = kind._make
    return make


def rows(c: Connection, statement: str, params: Mapping[str, Any]) -> list[Any]:
    """Runs a statement within the connection's transaction; returns its rows as named tuples.

    Args:
      c: The connection.
      statement: SQL with `%(name)s` where a value goes.
      params: The values by name.
    """
    return _driver(c).fetch(statement, params)


def row(c: Connection, statement: str, params: Mapping[str, Any]) -> Any:
    """Returns the first row, or None; see `rows`."""
    found = _driver(c).fetch(statement, params)
    return found[0] if found else None


def value(c: Connection, statement: str, params: Mapping[str, Any]) -> Any:
    """Returns the first column of the first row, or None; see `rows`."""
    found = _driver(c).fetch(statement, params, tuple)
    return found[0][0] if found else None


def values(c: Connection, statement: str, params: Mapping[str, Any]) -> list[Any]:
    """Returns the first column of every row; see `rows`."""
    return [record[0] for record in _driver(c).fetch(statement, params, tuple)]


def stream(c: Connection, statement: str, params: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the first column of every row, of which few are held at once; see `rows`."""
    with _driver(c).cursor("streamed") as cursor:
        cursor.itersize = 500
        for record in cursor.execute(statement, params):
            yield record[0]


def write(c: Connection, statement: str, params: Mapping[str, Any]) -> int:
    """Runs a statement that returns nothing; returns how many rows it wrote."""
    return _driver(c).write(statement, params)


def rows_later(c: Connection, statement: str, params: Mapping[str, Any]) -> Callable[[], list[Any]]:
    """Sends a statement of `together`; returns a function that gives its rows after the end."""
    return _driver(c).fetch_later(statement, params)


def together(c: Connection) -> AbstractContextManager[None]:
    """Sends the statements of the block and a commit at once; SQLAlchemy still ends its part.

    Errors are raised at the end, and nothing is committed then.
    """
    return _driver(c).together()


def _send_all(connection: psycopg.pq.abc.PGconn) -> None:
    """Sends what libpq still holds of statements.

    Who tries once, and then waits for the answer to a statement larger than the buffers of the
    socket (1 to 2 MB), does so for ever, with the transaction's locks.
    """
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN | select.POLLOUT)
    while connection.flush():
        if any(event & select.POLLIN for _, event in poll.poll()):
            connection.consume_input()


def _driver(c: Connection) -> DriverConnection:
    driver = c.connection.driver_connection
    assert isinstance(driver, DriverConnection)
    return driver
