"""Outages of the database: a short one is outlasted, and a server that is silent is noted."""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    # Without its password: a server that asks for one answers, and neither side computes a proof.
    address = make_url(database_url).set(drivername="postgresql")._replace(password=None)
    conninfo = address.render_as_string()
    threading.Thread(target=_look, args=(conninfo, note, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _look(conninfo: str, note: Callable[[str], None], done: threading.Event) -> None:
    silent = False
    while not done.wait(LOOK_SECONDS):
        found = _silent(conninfo)
        if found != silent and not done.is_set():
            silent = found
            note(f"the database {'does not answer: waiting for it' if silent else 'answers again'}")


def _silent(conninfo: str) -> bool:
    """Returns whether a server says nothing to a client; one that refuses it answers."""
    try:
        psycopg.connect(conninfo, connect_timeout=SILENT_SECONDS).close()
    except psycopg.errors.ConnectionTimeout:
        return True
    except psycopg.Error:
        return False
    return False
