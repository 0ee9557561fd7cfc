"""A ledger that is away for a moment, as while its server restarts."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError

Connection = TypeVar("Connection")

AGAIN_SECONDS = 0.5
"""Between two tries."""
CONNECT_SECONDS = 15
"""For one of them; a busy machine may hold a server up for some seconds, and it is not away."""

_LOG = logging.getLogger(__name__)


class Outage:
    """Waits for a server that cannot be connected to; says so once, and when it is back.

    Without it a worker drains its queue in a moment: each step finds no ledger and ends, and what
    was rung for waits until `reap` rings again.  Waiting is safe, as nothing has been done yet.

    Args:
      patience_seconds: How long is waited; 0.0: not at all.
      again_seconds: Between two tries.
    """

    def __init__(self, patience_seconds: float, again_seconds: float = AGAIN_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._again_seconds = again_seconds
        self._told = False

    def outlast(self, connect: Callable[[], Connection]) -> Connection:
        """Returns what `connect` returns as soon as it does.

        Raises:
          OperationalError, InterfaceError: It did not within the patience.
        """
        ends = time.monotonic() + self._patience_seconds
        while True:
            try:
                connected = connect()
            except (OperationalError, InterfaceError) as error:
                if time.monotonic() + self._again_seconds > ends:
                    raise
                self._tell(error)
            else:
                self._recovered()
                return connected
            time.sleep(self._again_seconds)

    def _tell(self, error: OperationalError | InterfaceError) -> None:
        if not self._told:
            self._told = True
            why = str(error.orig).strip().split("\n")[0]
            _LOG.warning("the database does not answer, waiting for it: %s", why)

    def _recovered(self) -> None:
        if self._told:
            self._told = False
            _LOG.warning("the database answers again")
