"""The Store port on Postgres."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.adapters.store.transaction import SqlTransaction
from app.ports import Unavailable

_SESSION = "-c plan_cache_mode=force_generic_plan -c jit=off"
"""Every statement is a lookup by key, run thousands of times: planning it anew costs more than it."""

_OURS = (errors.DeadlockDetected, errors.UndefinedTable, errors.UndefinedColumn)
"""Operational errors that another attempt would not cure: a lock order broken, a schema behind."""


class SqlStore:
    """A store in one Postgres database.

    Args:
      url: SQLAlchemy address, `postgresql+psycopg://…`.
      connections: Largest number held at once by this process; opened as they are needed.
      wait_seconds: How long a transaction waits for a connection before it is `Unavailable`.
    """

    def __init__(self, url: str, *, connections: int = 16, wait_seconds: float = 30.0) -> None:
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
            with self._engine.begin() as connection:
                tx = SqlTransaction(connection)
                yield tx
                tx.flush_events()
        except (OperationalError, InterfaceError) as error:
            if isinstance(error.orig, _OURS):
                raise
            raise Unavailable(f"the database: {_first_line(error)}") from error
        except PoolTimeout as error:
            raise Unavailable(f"no database connection became free: {error}") from error

    def close(self) -> None:
        """Closes every pooled connection.  Idempotent."""
        self._engine.dispose()


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().split("\n")[0]
