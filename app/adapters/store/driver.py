"""The connection of the repositories: psycopg's, which runs statements without cursors.

A cursor of psycopg looks up anew, for each statement, how its parameters and columns are converted,
which takes four times as long as all else that the client does for it.  Here these are kept for as
long as the connection, and so are the prepared statements: see `docs/decisions/hot-statements.md`.
"""

import itertools
import json
import re
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import psycopg
from psycopg import generators
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader, PyFormat, Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

Record: TypeAlias = Any
"""A row as a named tuple; its statement alone says which columns it has."""
Json: TypeAlias = Mapping[str, Any]
"""An object of JSON, such as a row inside a row."""
_MakeRow: TypeAlias = Callable[[Sequence[object]], Record]
_Key: TypeAlias = tuple[bytes, tuple[int, ...]]
"""The text of a statement and the types of its parameters: by these it is prepared once."""

_PLACE = re.compile(r"%\((\w+)\)s|%%")
_STATEMENTS = 512
_numbers = itertools.count()
"""Of prepared statements: a name is never used again."""
_SUCCESS = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
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


class _ArrayDumper(Dumper):
    """Writes lists of numbers or texts, whose type Postgres takes from the statement.

    The driver's own looks for the type of the elements in each list anew, three times.
    """

    def dump(self, obj: list[object]) -> bytes:
        return ("{" + ",".join(map(_element, obj)) + "}").encode()


class _JsonLoader(Loader):
    """Reads JSON as UTF-8, as Postgres sends it; the driver's own looks for the encoding first."""

    def load(self, data: Buffer) -> Any:
        return _decode(str(data, "utf-8"))


class DriverConnection(psycopg.Connection[Any]):
    """A connection that runs statements without a cursor.

    Statements are SQL with `%(name)s` where a value goes.  The first one begins a transaction.
    Each raises `psycopg.Error` as a cursor does.
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
        self.kept: dict[int, Any] = {}
        """What rarely changes of runs, which is read once; see `app.adapters.store.runs`."""
        self.begins = b"BEGIN"
        """What begins a transaction."""
        self.prepares = True
        """Whether statements are prepared by a name, which needs the same session each time."""

    def rows(self, statement: str, params: Mapping[str, object]) -> list[Record]:
        """Returns the rows of a statement as named tuples."""
        name, result = self._run(statement, params)
        if not result.ntuples:
            return []
        make_row = self._makers.get(name)
        if make_row is None:
            columns = tuple((result.fname(n) or b"").decode() for n in range(result.nfields))
            make_row = self._makers[name] = _named(columns)
        converter = self._converter
        converter.set_pgresult(result)
        made = converter.load_rows(0, result.ntuples, make_row)
        # The converter would keep a large result until the next statement.
        converter.set_pgresult(None)
        return made

    def row(self, statement: str, params: Mapping[str, object]) -> Record:
        """Returns the first row, or None."""
        found = self.rows(statement, params)
        return found[0] if found else None

    def values(self, statement: str, params: Mapping[str, object]) -> list[Any]:
        """Returns the first column of every row."""
        return [record[0] for record in self.rows(statement, params)]

    def value(self, statement: str, params: Mapping[str, object]) -> Any:
        """Returns the first column of the first row, or None."""
        found = self.rows(statement, params)
        return found[0][0] if found else None

    def stream(self, statement: str, params: Mapping[str, object]) -> Iterator[Any]:
        """Yields the first column of every row, of which few are held at once."""
        with self.cursor("streamed") as cursor:
            cursor.itersize = 500
            for record in cursor.execute(statement.encode(), params):
                yield record[0]

    def write(self, statement: str, params: Mapping[str, object]) -> int:
        """Runs a statement that returns nothing; returns how many rows it wrote."""
        return self._run(statement, params)[1].command_tuples or 0

    def _run(self, statement: str, params: Mapping[str, object]) -> tuple[bytes, PGresult]:
        """Runs a statement; returns what it is known by, its name or its text, and its result."""
        text, order = _numbered(statement)
        converter = self._converter
        values = converter.dump_sequence(
            [params[name] for name in order], [PyFormat.AUTO] * len(order)
        )
        if self.pgconn.transaction_status == TransactionStatus.IDLE:
            self.pgconn.send_query(self.begins)
            self._result()
        types = converter.types or ()
        if not self.prepares:
            self.pgconn.send_query_params(text, values, types, converter.formats, Format.TEXT)
            return text, self._result()
        key = (text, types)
        name = self._names.get(key)
        if name is None:
            name = b"evoqueue_%d" % next(_numbers)
            self.pgconn.send_prepare(name, *key)
            self._result()
            self._names[key] = name
        self.pgconn.send_query_prepared(name, values, converter.formats, Format.TEXT)
        return name, self._result()

    def _result(self) -> PGresult:
        """Waits for the result of the statement that was sent."""
        results: list[PGresult] = self.wait(generators.execute(self.pgconn))
        for result in results:
            if result.status not in _SUCCESS:
                raise psycopg.errors.error_from_result(result, encoding=self.info.encoding)
        return results[-1]


def connect(arguments: Sequence[Any], parameters: Mapping[str, Any]) -> DriverConnection:
    """Returns a new connection; takes what `psycopg.connect` does.

    What psycopg prepares itself it forgets with a rollback, and all other prepared statements of
    the connection with it: it is to prepare nothing.
    """
    return DriverConnection.connect(*arguments, **{**parameters, "prepare_threshold": None})


@lru_cache(_STATEMENTS)
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Returns a statement with numbers in the place of names, and the names in their order."""
    order: dict[str, int] = {}

    def numbered(place: re.Match[str]) -> str:
        return f"${order.setdefault(place[1], len(order) + 1)}" if place[1] else "%"

    return _PLACE.sub(numbered, statement).encode(), tuple(order)


@lru_cache(_STATEMENTS)
def _named(columns: tuple[str, ...]) -> _MakeRow:
    # A column without a name, such as "?column?", gets that of its place.
    kind: Any = namedtuple("Row", columns, rename=True)  # type: ignore[misc]
    make: _MakeRow = kind._make
    return make
