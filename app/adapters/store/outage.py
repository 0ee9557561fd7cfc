"""Outages of the database: a short one is outlasted, and a server that is silent is noted."""

import logging
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import psycopg
from sqlalchemy import make_url
from sqlalchemy.exc import InterfaceError, OperationalError

Connection = TypeVar("Connection")

AGAIN_SECONDS = 0.5
"""Between two attempts to connect."""
CONNECT_SECONDS = 15
"""For one attempt: on a busy machine a server may take seconds to accept a connection."""

LOOK_SECONDS, SILENT_SECONDS = 3.0, 3
"""Between two looks at a server, and how long each waits for it: it is noted within ten seconds,
also where a host has two addresses."""

_REFUSAL = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r'|(?:role|database) ".*" does not exist'
    r"|certificate verify failed|does not match host name|server does not support SSL"
    r'|root certificate file ".*" does not exist'
)
"""The server's answer to an address that will not become right; the driver has no code for it."""

_LOG = logging.getLogger(__name__)


class Outage:
    """Waits for a server that does not accept connections, and logs the outage's start and end.

    Without it a worker would empty its queue at once: each step would fail, and its message would
    be lost until `reap` enqueues it again.  Waiting is safe, because nothing has been done yet.

    Args:
      patience_seconds: How long to wait; 0.0: not at all.
      again_seconds: Between two attempts to connect.
    """

    def __init__(self, patience_seconds: float, again_seconds: float = AGAIN_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._again_seconds = again_seconds
        self._logged = False

    def outlast(self, connect: Callable[[], Connection]) -> Connection:
        """Returns what `connect` returns, once it succeeds.

        Raises:
          OperationalError, InterfaceError: It did not succeed within the patience, or the server
            answered that it refuses this address.
        """
        ends = time.monotonic() + self._patience_seconds
        while True:
            try:
                connected = connect()
            except (OperationalError, InterfaceError) as error:
                ended = time.monotonic() + self._again_seconds > ends
                if ended or _REFUSAL.search(str(error.orig)):
                    raise
                self._log(error)
            else:
                self._recovered()
                return connected
            time.sleep(self._again_seconds)

    def _log(self, error: OperationalError | InterfaceError) -> None:
        if not self._logged:
            self._logged = True
            reason = str(error.orig).strip().split("\n")[0]
            _LOG.warning("the database does not answer, waiting for it: %s", reason)

    def _recovered(self) -> None:
        if self._logged:
            self._logged = False
            _LOG.warning("the database answers again")


@contextmanager
def silence_noted(database_url: str, note: Callable[[str], None]) -> Iterator[None]:
    """Notes, while the block lasts, that the server is silent, and that it answers again.

    Nothing else shows a frozen server: it accepts connections, and a statement waits for ever.

    Args:
      database_url: Its address.
      note: Receives a line; called by another thread.
    """
    done = threading.Event()
    conninfo = make_url(database_url).set(drivername="postgresql").render_as_string(False)
    threading.Thread(target=_look, args=(Looks(conninfo), note, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()


class Looks:
    """Looks at a server, which is asked on one connection for as long as that lasts.

    A connection for each look would cost an idle stack a tenth of what it uses.
    """

    def __init__(self, conninfo: str) -> None:
        """Connects to nothing yet."""
        self._conninfo = conninfo
        self._connection: psycopg.Connection | None = None

    def silent(self) -> bool:
        """Returns whether the server says nothing to a client; one that refuses it answers."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._conninfo, connect_timeout=SILENT_SECONDS)
            elif _says_nothing(self._connection):
                self.close()
                return True
        except psycopg.errors.ConnectionTimeout:
            return True
        except psycopg.Error:
            self.close()
        return False

    def close(self) -> None:
        """Closes the connection.  Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _says_nothing(connection: psycopg.Connection) -> bool:
    """Returns whether an empty query stays without an answer; raises where the connection ends."""
    driver = connection.pgconn
    driver.send_query(b"")
    poll = select.poll()
    poll.register(driver.socket, select.POLLIN)
    ends = time.monotonic() + SILENT_SECONDS
    while driver.is_busy():
        if not poll.poll(1000 * max(0.0, ends - time.monotonic())):
            return True
        driver.consume_input()
    while driver.get_result() is not None:
        pass
    return False


def _look(looks: Looks, note: Callable[[str], None], done: threading.Event) -> None:
    silent = False
    with closing(looks):
        while not done.wait(LOOK_SECONDS):
            found = looks.silent()
            if found != silent and not done.is_set():
                silent = found
                answers = "does not answer: waiting for it" if silent else "answers again"
                note(f"the database {answers}")
