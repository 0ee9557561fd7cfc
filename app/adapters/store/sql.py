"""The Store port on Postgres."""

import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import psycopg
from psycopg import errors
from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import InterfaceError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.adapters.store.archive import SqlArchive
from app.adapters.store.cohorts import SqlCohorts
from app.adapters.store.completions import SqlCompletions
from app.adapters.store.copies import SqlCopies
from app.adapters.store.driver import DriverConnection, connect
from app.adapters.store.events import SqlEvents
from app.adapters.store.fleets import SqlFleets, SqlProjects
from app.adapters.store.history import SqlHistory
from app.adapters.store.leases import SqlLeases
from app.adapters.store.outage import CONNECT_SECONDS, Outage
from app.adapters.store.outcomes import SqlOutcomes
from app.adapters.store.problems import SqlProblems
from app.adapters.store.programs import SqlPrograms
from app.adapters.store.proposals import SqlProposals
from app.adapters.store.retention import SqlRetention
from app.adapters.store.runs import SqlRuns
from app.adapters.store.tables import metadata
from app.adapters.store.trials import SqlTrials
from app.adapters.store.workers import SqlWorkers
from app.ports.ledger import Transaction
from app.ports.protocols import Unavailable, Unwritable

_IDLE = "idle_in_transaction_session_timeout"
_SESSION = {
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
"""Every statement is a lookup by key, run thousands of times: planning costs more than it does.

A plan is made once and kept, often while the tables are empty, when a scan looks as cheap as an
index: scans are ruled out, or they would be run until the tables are analysed.
"""

_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_PROBES: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # The unit is milliseconds.
    "tcp_user_timeout": 30_000,
}
"""A server that has vanished is noticed within half a minute."""

_GONE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.IdleInTransactionSessionTimeout,
)
"""What the driver raises where the server, or the way to it, is the reason."""

_OURS = (
    errors.DeadlockDetected,
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
    errors.TooManyColumns,
    errors.TooManyArguments,
)
"""Operational errors that another attempt would not cure.

A broken lock order, an outdated schema, and whatever exceeds a limit of Postgres (class 54).
"""


class SqlTransaction(Transaction):
    """See `app.ports.ledger.Transaction`.

    Events are written last: their numbers need the lock of the run's row, for which all other
    transactions of the run wait.
    """

    def __init__(self, connection: DriverConnection) -> None:
        self._events = SqlEvents(connection)
        self.problems = SqlProblems(connection)
        self.runs = SqlRuns(connection)
        self.programs = SqlPrograms(connection)
        self.cohorts = SqlCohorts(connection)
        self.proposals = SqlProposals(connection)
        self.trials = SqlTrials(connection)
        self.leases = SqlLeases(connection)
        self.archive = SqlArchive(connection)
        self.completions = SqlCompletions(connection)
        self.outcomes = SqlOutcomes(connection)
        self.copies = SqlCopies(connection)
        self.events = self._events
        self.workers = SqlWorkers(connection)
        self.fleets = SqlFleets(connection)
        self.projects = SqlProjects(connection)
        self.history = SqlHistory(connection)
        self.retention = SqlRetention(connection)

    def write_events(self) -> None:
        """Numbers and stores the events; called once, right before the commit."""
        self._events.write()


class SqlStore:
    """A store in one Postgres database.

    Args:
      url: SQLAlchemy address, `postgresql+psycopg://…`.
      session_url: Where `url` is the address of a pooler that gives each transaction any session:
        an address of sessions that last, for notices and vacuums.  None: `url` is one.
      connections: Largest number held at once by this process; opened as they are needed.
      wait_seconds: How long a transaction waits for a connection before it is `Unavailable`.
      patience_seconds: How long a transaction waits for a server that accepts no connection.
      idle_seconds: How long a transaction may leave the server without a statement before it is
        ended, its locks with it: its process is frozen, or cut off.  0.0: for ever.
    """

    def __init__(
        self,
        url: str,
        *,
        session_url: str | None = None,
        connections: int = 16,
        wait_seconds: float = 30.0,
        patience_seconds: float = 0.0,
        idle_seconds: float = 0.0,
    ) -> None:
        self._outage = Outage(patience_seconds)
        settings = {**_SESSION, _IDLE: f"{round(1000 * idle_seconds)}"}
        parameters = {
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "evoqueue",
            **_PROBES,
        }
        if session_url is None:
            parameters["options"] = " ".join(f"-c {name}={at}" for name, at in settings.items())
        self._engine: Engine = create_engine(
            url,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=wait_seconds,
            pool_pre_ping=False,
            connect_args=parameters,
        )
        pooled = "; ".join(["BEGIN", *(f"SET LOCAL {name}={at}" for name, at in settings.items())])
        begins = None if session_url is None else pooled.encode()
        event.listen(self._engine, "do_connect", partial(_connected, begins))
        event.listen(self._engine, "checkout", _refuse_ended)
        self._sessions = make_url(session_url or url).set(drivername="postgresql")

    @contextmanager
    def begin(self, *, snapshot: bool = False) -> Iterator[SqlTransaction]:
        """Opens a transaction; see `app.ports.protocols.Store.begin`."""
        try:
            with self._outage.outlast(self._engine.connect) as connection:
                # `driver_connection` is the same object, found by way of the pool.
                driver = connection.connection.dbapi_connection
                assert isinstance(driver, DriverConnection)
                tx = SqlTransaction(driver)
                try:
                    if snapshot:
                        driver.write(_SNAPSHOT, {})
                    yield tx
                    tx.write_events()
                    driver.commit()
                except _GONE as error:
                    _give_up(connection, error)
        except (OperationalError, InterfaceError) as error:
            raise _unavailable(error.orig) from error
        except PoolTimeout as error:
            raise Unavailable(f"no database connection became free: {error}") from error

    def listen(self, channel: str, seconds: float) -> Iterator[bool]:
        """Yields True once it listens, and then after each notice on a channel of the database.

        It has a connection of its own.  Notices that come together are one.

        Args:
          channel: An identifier.
          seconds: After so long without a notice it yields False.

        Raises:
          Unavailable: The database cannot be reached, or ended the connection.
        """
        with self._own_connection() as driver:
            driver.execute(f"LISTEN {channel}".encode())
            yield True
            while True:
                yield bool(list(driver.notifies(timeout=seconds, stop_after=1)))

    def vacuum(self, *, full: bool = False) -> None:
        """See `app.ports.protocols.Store.vacuum`."""
        with self._own_connection() as driver:
            how = "FULL, ANALYZE" if full else "ANALYZE"
            driver.execute(f"VACUUM ({how}) {', '.join(metadata.tables)}".encode())

    @contextmanager
    def _own_connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Yields a connection without transactions that is used for nothing else, and closes it."""
        try:
            with psycopg.Connection.connect(
                self._sessions.render_as_string(hide_password=False),
                connect_timeout=CONNECT_SECONDS,
                application_name="evoqueue",
                autocommit=True,
                **_PROBES,
            ) as connection:
                yield connection
        except _GONE as error:
            raise Unavailable(f"the database: {_first_line(error)}") from error

    def close(self) -> None:
        """Closes every pooled connection.  Idempotent."""
        self._engine.dispose()


def _connected(
    begins: bytes | None,
    dialect: object,  # noqa: ARG001
    record: object,  # noqa: ARG001
    arguments: Sequence[Any],
    parameters: Mapping[str, Any],
) -> psycopg.Connection[Any]:
    """Returns a connection.

    Where `begins` is given, the pooler behind it gives each transaction any session: the settings
    of a session are those of each transaction, and no statement is prepared by a name.
    """
    driver = connect(arguments, parameters)
    if begins is not None:
        driver.begins, driver.prepares = begins, False
    return driver


def _refuse_ended(driver: Any, record: object, proxy: object) -> None:  # noqa: ARG001
    """Replaces a connection that the server has closed while it was idle, and all older ones.

    A server sends nothing on an idle connection but its end, so this costs no round trip.
    """
    if driver.closed or _readable(driver.fileno()):
        raise InvalidatePoolError("the server has ended an idle connection")


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _give_up(connection: Connection, error: psycopg.Error) -> NoReturn:
    """Passes a driver's error on; a connection that has ended is used no more."""
    if isinstance(error, _OURS):
        raise error
    if connection.connection.driver_connection.closed:  # type: ignore[union-attr]  # psycopg's
        connection.invalidate(error)
    raise _unavailable(error) from error


def _unavailable(error: BaseException | None) -> Unavailable:
    """Returns what a driver's error is to those who use the ledger."""
    kind = Unwritable if isinstance(error, errors.DiskFull) else Unavailable
    return kind(f"the database: {_first_line(error)}")


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().split("\n")[0]
