"""The Store port on Postgres."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import psycopg
from psycopg import errors
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.adapters.store.driver import pipeline
from app.adapters.store.outage import Outage
from app.adapters.store.transaction import SqlTransaction
from app.ports import Unavailable

_SESSION = (
    "-c plan_cache_mode=force_generic_plan -c jit=off"
    " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
)
"""Every statement is a lookup by key, run thousands of times: planning costs more than it does.

A plan is made once and kept, often while the tables are empty, when a scan looks as cheap as an
index: scans are ruled out, or they would be run for as long as nobody analyses the tables.
"""

_OURS = (errors.DeadlockDetected, errors.UndefinedTable, errors.UndefinedColumn)
"""Operational errors that another attempt would not cure: a lock order broken, a schema behind."""


class SqlStore:
    """A store in one Postgres database.

    Args:
      url: SQLAlchemy address, `postgresql+psycopg://…`.
      connections: Largest number held at once by this process; opened as they are needed.
      wait_seconds: How long a transaction waits for a connection before it is `Unavailable`.
      patience_seconds: How long one waits for a server that cannot be connected to.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 16,
        wait_seconds: float = 30.0,
        patience_seconds: float = 0.0,
    ) -> None:
        self._outage = Outage(patience_seconds)
        self._engine: Engine = create_engine(
            url,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=wait_seconds,
            pool_pre_ping=False,
            connect_args={
                "connect_timeout": 10,
                "application_name": "evoqueue",
                "options": _SESSION,
                "prepare_threshold": 1,
            },
        )

    @contextmanager
    def begin(self) -> Iterator[SqlTransaction]:
        """Opens a transaction; see `app.ports.Store.begin`."""
        try:
            with self._outage.outlast(self._engine.connect) as connection:
                connection.begin()
                tx = SqlTransaction(connection)
                try:
                    yield tx
                    _commit(connection, tx)
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    self._give_up(connection, error)
        except (OperationalError, InterfaceError) as error:
            if isinstance(error.orig, _OURS):
                raise
            raise Unavailable(f"the database: {_first_line(error.orig)}") from error
        except PoolTimeout as error:
            raise Unavailable(f"no database connection became free: {error}") from error

    def _give_up(self, connection: Connection, error: psycopg.Error) -> NoReturn:
        """Passes a driver's error on; where the server has gone, every idle connection goes too."""
        if isinstance(error, _OURS):
            raise error
        if connection.connection.driver_connection.closed:  # type: ignore[union-attr]  # psycopg's
            connection.invalidate(error)
            self._engine.dispose()
        raise Unavailable(f"the database: {_first_line(error)}") from error

    def close(self) -> None:
        """Closes every pooled connection.  Idempotent."""
        self._engine.dispose()


def _commit(connection: Connection, tx: SqlTransaction) -> None:
    """Writes what was held back and commits, in one round trip.

    It takes the run's row lock, for which everybody waits.  In two round trips it would be held
    until this process, one of many on a busy machine, has its next turn.
    """
    if not tx.holds_back:
        connection.commit()
        return
    with pipeline(connection):
        tx.write_last()
        connection.commit()


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().split("\n")[0]
