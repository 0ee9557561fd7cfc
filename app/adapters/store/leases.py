"""Leases: their rows, and the thread that renews those of this process while its steps run."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from app.adapters.store.driver import rows, value, values, write
from app.adapters.store.trials import waiting
from app.domain.search.cohort import ProposalId, TrialId
from app.ports.protocols import Store, Unavailable
from app.ports.records import WaitingTrial

LeaseKind: TypeAlias = Literal["proposal", "trial"]

_LOG = logging.getLogger(__name__)

_RENEW = """
    UPDATE {table} SET leased_until = now() + %(lease)s * interval '1 second'
    WHERE id IN (SELECT id FROM {table} WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE)
        AND leased_until IS NOT NULL
"""
_RELEASE = """
    UPDATE {table} SET leased_until = NULL, visible_at = now() + %(retry)s * interval '1 second',
        attempts = greatest(attempts - %(uncounted)s, 0)
    WHERE id IN (SELECT id FROM {table} WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE)
"""
_RUNS = """
    SELECT run FROM proposals WHERE id = ANY(%(proposals)s)
    UNION SELECT run FROM trials WHERE id = ANY(%(trials)s) ORDER BY run
"""
_OVERDUE = """
    UPDATE {table} SET visible_at = now() + %(again)s * interval '1 second'
    WHERE id IN (
        SELECT id FROM {table} WHERE run = %(run)s AND {waiting} AND visible_at < now()
            AND (leased_until IS NULL OR leased_until < now())
        ORDER BY visible_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) RETURNING {columns}
"""
_FORGET = """
    UPDATE {table} SET attempts = 0, visible_at = now(),
        leased_until = CASE WHEN %(kept)s AND leased_until > now() THEN leased_until END
    WHERE id IN (
        SELECT id FROM {table} WHERE run = %(run)s AND {waiting} AND visible_at IS NOT NULL
        ORDER BY id FOR NO KEY UPDATE
    )
"""
_HELD = "SELECT count(*) FROM {table} WHERE run = %(run)s AND {waiting} AND leased_until > now()"
_REPEATED = """
    SELECT coalesce(sum(attempts - 1), 0) FROM (
        SELECT attempts FROM proposals WHERE run = %(run)s
        UNION ALL SELECT attempts FROM trials WHERE run = %(run)s
    ) AS begun WHERE attempts > 1
"""
_WAITING = {"proposals": "state = 'planned'", "trials": "evaluation IS NULL"}
_COLUMNS = {"proposals": "id", "trials": "id, cohort, stage"}


class LeaseRenewer:
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
        self._held: dict[Literal["proposal", "trial"], set[int]] = {
            "proposal": set(),
            "trial": set(),
        }
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def keep(self, kind: LeaseKind, subject: int) -> Iterator[None]:
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
                proposals, trials = sorted(self._held["proposal"]), sorted(self._held["trial"])
            if not proposals and not trials:
                continue
            try:
                with self._store.begin() as tx:
                    tx.leases.renew(proposals, trials, self._lease_seconds)
            except Unavailable as error:
                _LOG.warning("leases not renewed, trying again: %s", error)


class SqlLeases:
    """See `app.ports.ledger.Leases`."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def renew(
        self, proposals: Sequence[ProposalId], trials: Sequence[TrialId], lease_seconds: float
    ) -> None:
        for table, ids in (("proposals", proposals), ("trials", trials)):
            if ids:
                write(
                    self._c,
                    _RENEW.format(table=table),
                    {"ids": sorted(ids), "lease": lease_seconds},
                )

    def release(
        self,
        proposals: Sequence[ProposalId],
        trials: Sequence[TrialId],
        retry_seconds: float,
        *,
        counted: bool = False,
    ) -> None:
        for table, ids in (("proposals", proposals), ("trials", trials)):
            if ids:
                write(
                    self._c,
                    _RELEASE.format(table=table),
                    {"ids": sorted(ids), "retry": retry_seconds, "uncounted": 0 if counted else 1},
                )

    def runs(self, proposals: Sequence[ProposalId], trials: Sequence[TrialId]) -> list[int]:
        return values(self._c, _RUNS, {"proposals": list(proposals), "trials": list(trials)})

    def overdue(
        self, run: int, redeliver_seconds: float, limit: int = 1000
    ) -> tuple[list[ProposalId], list[WaitingTrial]]:
        result = {}
        for table, waiting_if in _WAITING.items():
            query = _OVERDUE.format(table=table, waiting=waiting_if, columns=_COLUMNS[table])
            result[table] = rows(
                self._c, query, {"run": run, "again": redeliver_seconds, "limit": limit}
            )
        return sorted(row.id for row in result["proposals"]), waiting(result["trials"])

    def held(self, run: int) -> int:
        return sum(
            value(self._c, _HELD.format(table=table, waiting=waiting_if), {"run": run})
            for table, waiting_if in _WAITING.items()
        )

    def repeated(self, run: int) -> int:
        return int(value(self._c, _REPEATED, {"run": run}))

    def forget_attempts(self, run: int, *, keep_leases: bool = False) -> None:
        params = {"run": run, "kept": keep_leases}
        for table, waiting_if in _WAITING.items():
            write(self._c, _FORGET.format(table=table, waiting=waiting_if), params)
