"""Leases of this process: renewed by one thread for as long as their steps run."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from app.ports.protocols import Store, Unavailable

_LOG = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews what this process holds, a third into each lease.

    The thread starts with the first lease and is a daemon: a process that dies renews nothing,
    which is how its work is found again.

    Args:
      store: The ledger that holds the leases.
      lease_seconds: Length of a lease; > 0.
    """

    def __init__(self, store: Store, lease_seconds: float) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._held: dict[Literal["cohort", "trial"], set[int]] = {"cohort": set(), "trial": set()}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def keep(self, kind: Literal["cohort", "trial"], subject: int) -> Iterator[None]:
        """Keeps a lease alive while the context is open."""
        with self._lock:
            self._held[kind].add(subject)
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._held[kind].discard(subject)

    def close(self) -> None:
        """Stops renewing.  Idempotent."""
        self._closed.set()

    def _renew(self) -> None:
        while not self._closed.wait(self._lease_seconds / 3):
            with self._lock:
                cohorts, trials = sorted(self._held["cohort"]), sorted(self._held["trial"])
            if not cohorts and not trials:
                continue
            try:
                with self._store.begin() as tx:
                    tx.renew(cohorts, trials, self._lease_seconds)
            except Unavailable as error:
                _LOG.warning("leases not renewed, trying again: %s", error)
