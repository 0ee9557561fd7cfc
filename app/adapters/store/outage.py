"""Short outages of the database, as while its server restarts."""

import logging
import re
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError

Connection = TypeVar("Connection")

AGAIN_SECONDS = 0.5
"""Between two attempts to connect."""
CONNECT_SECONDS = 15
"""For one attempt: on a busy machine a server may take seconds to accept a connection."""

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
