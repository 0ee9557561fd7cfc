"""Hot statements, straight to the driver.

SQLAlchemy keeps the connections, the transactions and everything that runs now and then.  What runs
for every proposal skips its compilation and result machinery, which costs a multiple of the
statement, and the driver's cursors: see `docs/decisions/hot-statements.md`.
"""

import itertools
import json
import re
import select
from collections import namedtuple
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import generators
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader, PyFormat, Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from sqlalchemy import Connection

_MakeRow: TypeAlias = Callable[[Sequence[Any]], Any]
_Key: TypeAlias = tuple[bytes, tuple[int, ...]]
_Take: TypeAlias = Callable[[bytes, Any], object]

_PLACE = re.compile(r"%\((\w+)\)s|%%")
_STATEMENTS = 512
_numbers = itertools.count()
"""Of prepared statements: a name is never used again."""
_SUCCESS = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_IDLE = TransactionStatus.IDLE
_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_decode = json.JSONDecoder().decode


def _element(value: object) -> str:
    """Returns an element of an array as Postgres reads it.

    Raises:
      TypeError: Its text in Python is not its text in Postgres.
    """
    if isinstance(value, (bytes, bytearray, memoryview, list, tuple, set, dict)):
        raise TypeError(f"a list with a {type(value).__name__} in it cannot be a parameter")
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else str(value)


def _nothing(name: bytes, result: object) -> None:
    """Takes the result of what is only written."""


def _written(name: bytes, result: Any) -> int:  # noqa: ARG001
    """Returns how many rows a statement wrote."""
    return int(result.command_tuples)


class _ArrayDumper(Dumper):
    """Writes lists of numbers or texts, whose type Postgres takes from the statement.

    The driver's own looks for the type of the elements in each list anew, three times.
    """

    def dump(self, obj: list[Any]) -> bytes:
        return ("{" + ",".join(map(_element, obj)) + "}").encode()


class _JsonLoader(Loader):
    """Reads JSON as UTF-8, as Postgres sends it; the driver's own looks for the encoding first."""

    def load(self, data: Buffer) -> Any:
        return _decode(str(data, "utf-8"))


class _Statement(NamedTuple):
    """A statement with its parameters, and what takes its name and its result.

    Attributes:
      key: Its text and the types of its parameters: by these it is prepared once.
    """

    key: _Key
    values: Sequence[Any]
    formats: Sequence[Format] | None
    take: _Take


_BEGIN = _Statement((b"BEGIN", ()), (), (), _nothing)
_COMMIT = _Statement((b"COMMIT", ()), (), (), _nothing)


class DriverConnection(psycopg.Connection[Any]):
    """A connection that runs statements without a cursor.

    A cursor of the driver looks up anew, for each statement, how its parameters and columns are
    converted, which takes four times as long as all else that the client does for it.  Here these
    are kept for as long as the connection, and so are the prepared statements.

    What is only written is postponed: it is sent in one round trip with the next statement whose
    result is awaited, or with the commit, and so is the beginning of a transaction.  A fault of it
    is raised there.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """See `psycopg.Connection`."""
        super().__init__(*args, **keywords)
        self.adapters.register_dumper(list, _ArrayDumper)
        for kind in ("json", "jsonb"):
            self.adapters.register_loader(kind, _JsonLoader)
        self._converter = Transformer(self)
        self._names: dict[_Key, bytes] = {}
        self._makers: dict[bytes, _MakeRow] = {}
        self._postponed: list[_Statement] = []

    def rows(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Returns the rows of a statement as named tuples.

        Raises:
          psycopg.Error: As a cursor does, for this statement or for one that was postponed.
        """
        found: list[Any] = self._sent(self._bound(statement, params, self._named_rows))
        return found

    def tuples(self, statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Returns the rows of a statement; see `rows`."""
        found: list[tuple[Any, ...]] = self._sent(self._bound(statement, params, self._tuples))
        return found

    def rows_later(self, statement: str, params: Mapping[str, Any]) -> Callable[[], list[Any]]:
        """Postpones a statement; returns a function that gives its rows, after the commit too."""
        found: list[list[Any]] = []

        def take(name: bytes, result: Any) -> None:
            found.append(self._named_rows(name, result))

        def read() -> list[Any]:
            if not found:
                self._sent(self._postponed.pop())
            return found[0]

        self._postponed.append(self._bound(statement, params, take))
        return read

    def write(self, statement: str, params: Mapping[str, Any]) -> None:
        """Postpones a statement that returns nothing."""
        self._postponed.append(self._bound(statement, params, _nothing))

    def count(self, statement: str, params: Mapping[str, Any]) -> int:
        """Returns how many rows a statement wrote; see `rows`."""
        return int(self._sent(self._bound(statement, params, _written)))

    def cursor(self, *args: Any, **keywords: Any) -> Any:
        """Returns a cursor of the driver, whose statements come after those that were postponed."""
        if self._postponed:
            self._sent(self._postponed.pop())
        return super().cursor(*args, **keywords)

    def commit(self) -> None:
        """Commits, in one round trip with what was postponed.

        Raises:
          psycopg.Error: What the first statement that failed led to; nothing is committed then.
        """
        if self._postponed or self.pgconn.transaction_status != _IDLE:
            self._sent(_COMMIT)

    def rollback(self) -> None:
        """Ends the transaction, and keeps the prepared statements, unlike the driver's own.

        None of them names a table that a transaction made.  What was postponed is never sent.
        """
        self._postponed.clear()
        status = self.pgconn.transaction_status
        if status == _IDLE:
            # A connection that goes back to the pool is usually idle.
            return
        if status in _OPEN:
            self.pgconn.send_query(b"ROLLBACK")
            self._result()
            return
        super().rollback()
        self._names.clear()
        self._makers.clear()

    def _bound(self, statement: str, params: Mapping[str, Any], take: _Take) -> _Statement:
        text, order = _numbered(statement)
        converter = self._converter
        values = converter.dump_sequence(
            [params[name] for name in order], [PyFormat.AUTO] * len(order)
        )
        return _Statement((text, converter.types or ()), values, converter.formats, take)

    def _sent(self, last: _Statement) -> Any:
        """Sends what was postponed, and a statement after it, and waits once for all.

        Returns:
          What the last one's `take` returns.
        """
        before = self._postponed
        if self.pgconn.transaction_status == _IDLE and not self.autocommit:
            # A single statement is a transaction of its own.
            if last is _COMMIT and len(before) == 1:
                last = before.pop()
            else:
                before.insert(0, _BEGIN)
        if not before:
            return self._alone(last)
        self._postponed = []
        return self._together([*before, last])

    def _alone(self, statement: _Statement) -> Any:
        """Sends a statement; see `_sent`."""
        key, values, formats, take = statement
        name = self._names.get(key)
        if name is None:
            name = self._prepare(key)
            self._result()
            self._names[key] = name
        self.pgconn.send_query_prepared(name, values, formats, Format.TEXT)
        return take(name, self._result())

    def _together(self, statements: Sequence[_Statement]) -> Any:
        """Sends statements in libpq's pipeline; see `_sent`."""
        connection = self.pgconn
        takers: list[tuple[_Take, bytes]] = []
        connection.enter_pipeline_mode()
        try:
            for key, values, formats, take in statements:
                name = self._names.get(key)
                if name is None:
                    name = self._prepare(key)
                    takers.append((partial(self._keep, key), name))
                connection.send_query_prepared(name, values, formats, Format.TEXT)
                takers.append((take, name))
            connection.pipeline_sync()
            _send_all(connection)
            answers = self.wait(_answers(connection, len(takers)))
        finally:
            try:
                connection.exit_pipeline_mode()
            except psycopg.Error:
                # The connection has ended, or was interrupted between two results.
                self.close()
        taken = None
        for (take, name), answer in zip(takers, answers, strict=True):
            taken = take(name, self._succeeded(answer))
        return taken

    def _prepare(self, key: _Key) -> bytes:
        """Sends a statement to be prepared; returns the name that it is kept by."""
        name = b"evoqueue_%d" % next(_numbers)
        self.pgconn.send_prepare(name, *key)
        return name

    def _keep(self, key: _Key, name: bytes, result: object) -> None:  # noqa: ARG002
        self._names.setdefault(key, name)

    def _result(self) -> Any:
        """Waits for the result of what was sent; raises what a cursor would."""
        return self._succeeded(self.wait(generators.execute(self.pgconn)))

    def _succeeded(self, results: Sequence[Any]) -> Any:
        for result in results:
            if result.status not in _SUCCESS:
                raise psycopg.errors.error_from_result(result, encoding=self.info.encoding)
        return results[-1]

    def _named_rows(self, name: bytes, result: Any) -> list[Any]:
        if not result.ntuples:
            return []
        make_row = self._makers.get(name)
        if make_row is None:
            columns = tuple((result.fname(n) or b"").decode() for n in range(result.nfields))
            make_row = self._makers[name] = _named(columns)
        return self._loaded(result, make_row)

    def _tuples(self, name: bytes, result: Any) -> list[Any]:  # noqa: ARG002
        return self._loaded(result, tuple)

    def _loaded(self, result: Any, make_row: _MakeRow) -> list[Any]:
        converter = self._converter
        converter.set_pgresult(result)
        made = converter.load_rows(0, result.ntuples, make_row)
        # The converter would keep a large result until the next statement.
        converter.set_pgresult(None)
        return made


def connect(arguments: Sequence[Any], parameters: Mapping[str, Any]) -> DriverConnection:
    """Returns a new connection; takes what `psycopg.connect` does."""
    return DriverConnection.connect(*arguments, **parameters)


def _answers(connection: psycopg.pq.abc.PGconn, n: int) -> Generator[Any, Any, list[Sequence[Any]]]:
    """Waits for the results of so many statements, and for the note that all have been there."""
    answers = []
    for _ in range(n):
        answers.append((yield from generators.fetch_many(connection)))
    yield from generators.fetch_many(connection)
    return answers


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
    return _driver(c).rows(statement, params)


def row(c: Connection, statement: str, params: Mapping[str, Any]) -> Any:
    """Returns the first row, or None; see `rows`."""
    found = _driver(c).rows(statement, params)
    return found[0] if found else None


def value(c: Connection, statement: str, params: Mapping[str, Any]) -> Any:
    """Returns the first column of the first row, or None; see `rows`."""
    found = _driver(c).tuples(statement, params)
    return found[0][0] if found else None


def values(c: Connection, statement: str, params: Mapping[str, Any]) -> list[Any]:
    """Returns the first column of every row; see `rows`."""
    return [record[0] for record in _driver(c).tuples(statement, params)]


def stream(c: Connection, statement: str, params: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the first column of every row, of which few are held at once; see `rows`."""
    with _driver(c).cursor("streamed") as cursor:
        cursor.itersize = 500
        for record in cursor.execute(statement, params):
            yield record[0]


def rows_later(c: Connection, statement: str, params: Mapping[str, Any]) -> Callable[[], list[Any]]:
    """Postpones a statement; returns a function that gives its rows, after the commit too.

    It is sent with the next one whose result is awaited, with the commit, or when its rows are
    asked for.
    """
    return _driver(c).rows_later(statement, params)


def write(c: Connection, statement: str, params: Mapping[str, Any]) -> None:
    """Postpones a statement that returns nothing: it is sent with the next one, or the commit."""
    _driver(c).write(statement, params)


def count(c: Connection, statement: str, params: Mapping[str, Any]) -> int:
    """Runs a statement that returns nothing; returns how many rows it wrote."""
    return _driver(c).count(statement, params)


def commit(c: Connection) -> None:
    """Commits, in one round trip with what was postponed; SQLAlchemy still ends its part."""
    _driver(c).commit()


def _send_all(connection: psycopg.pq.abc.PGconn) -> None:
    """Sends what libpq still holds of statements.

    Who tries once, and then waits for the answer to a statement larger than the buffers of the
    socket (1 to 2 MB), does so for ever, with the transaction's locks.
    """
    while connection.flush():
        poll = select.poll()
        poll.register(connection.socket, select.POLLIN | select.POLLOUT)
        if any(event & select.POLLIN for _, event in poll.poll()):
            connection.consume_input()


def _driver(c: Connection) -> DriverConnection:
    # `driver_connection` is the same object, found by way of the pool.
    driver = c.connection.dbapi_connection
    assert isinstance(driver, DriverConnection)
    return driver
