"""Leases: their rows, and the threads that renew those of this process and stop its steps."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeAlias

from app.adapters.store.driver import DriverConnection
from app.adapters.store.fleets import QUEUE, SERVED
from app.adapters.store.trials import waiting
from app.domain.search.cohort import CohortId, ProposalId, TrialId
from app.ports.protocols import Store, Unavailable
from app.ports.trials import WaitingTrial
from app.ports.workers import LIVE_SECONDS

LeaseKind: TypeAlias = Literal["proposal", "trial"]

CHANNEL = "evoq_withdrawn"
"""What Postgres notifies of withdrawals on."""
ENDED_CHANNEL = "evoq_branches"
"""What Postgres notifies of the ends of candidates on."""

_AGAIN_SECONDS = 1.0
"""Between two attempts to listen."""

_ENDING_SECONDS = 30.0
"""Longest wait for a thread that is to end: the ledger may not answer."""

_LOG = logging.getLogger(__name__)

_RENEW = """
    UPDATE {table} SET leased_until = now() + %(lease)s * interval '1 second'
    WHERE id IN (
        SELECT id FROM {table} WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    ) AND leased_until IS NOT NULL
"""
"""It waits for no lock, because it takes those of proposals before those of trials; a lease whose
row is locked now is renewed the next time."""
_UNWANTED = """
    EXISTS (SELECT FROM proposals AS member WHERE member.cohort = trials.cohort) AND NOT EXISTS (
        SELECT FROM proposals AS awaited
        WHERE awaited.cohort = trials.cohort AND awaited.settled_at IS NULL AND (
            awaited.program = ANY(trials.players) OR NOT EXISTS (
                SELECT FROM proposals AS gone WHERE gone.cohort = trials.cohort
                    AND gone.settled_at IS NOT NULL AND gone.program = ANY(trials.players)
            )
        )
    )
"""
"""Whether a trial serves no member of its cohort any more; one without a player among them serves
all that are not settled.  A trial of a cohort without members serves its run."""
_WITHDRAW = f"""
    UPDATE trials SET withdrawn = true WHERE id IN (
        SELECT id FROM trials WHERE cohort = ANY(%(cohorts)s) AND evaluation IS NULL
            AND NOT withdrawn AND {_UNWANTED}
        ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    )
"""
"""It waits for no lock: the transaction may hold those of other trials.  A trial that is locked is
being leased or renewed; its worker learns of the withdrawal, and marks it as it gives it back."""
_WITHDRAW_TRIALS = """
    UPDATE trials SET withdrawn = true WHERE id IN (
        SELECT id FROM trials WHERE id = ANY(%(trials)s) AND evaluation IS NULL
        ORDER BY id FOR NO KEY UPDATE
    )
"""
_NOTIFY = "SELECT pg_notify(%(channel)s, '')"
_ENDED = """
    (SELECT runs.state IN ('finished', 'cancelled', 'failed') FROM runs WHERE runs.id = {table}.run)
"""
_WITHDRAWN = {
    "proposals": f"""
        SELECT id FROM proposals WHERE id = ANY(%(ids)s)
            AND (state <> 'planned' OR {_ENDED.format(table="proposals")})
    """,
    "trials": f"""
        SELECT id FROM trials WHERE id = ANY(%(ids)s)
            AND (withdrawn OR {_ENDED.format(table="trials")} OR {_UNWANTED})
    """,
}
_RELEASE_PROPOSALS = """
    UPDATE proposals SET leased_until = NULL, visible_at = now() + %(retry)s * interval '1 second',
        attempts = greatest(attempts - %(uncounted)s, 0)
    WHERE id IN (SELECT id FROM proposals WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE)
"""
_RELEASE_TRIALS = f"""
    UPDATE trials SET leased_until = NULL, visible_at = now() + %(retry)s * interval '1 second',
        attempts = greatest(attempts - %(uncounted)s, 0),
        withdrawn = evaluation IS NULL AND (withdrawn OR {_UNWANTED})
    WHERE id IN (SELECT id FROM trials WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE)
"""
_RUNS = """
    SELECT run FROM proposals WHERE id = ANY(%(proposals)s)
    UNION SELECT run FROM trials WHERE id = ANY(%(trials)s) ORDER BY run
"""
_OVERDUE = """
    UPDATE {table} SET visible_at = now() + %(again)s * interval '1 second'
    WHERE id IN (
        SELECT id FROM {table} WHERE run = %(run)s AND {waiting} AND visible_at < now()
            AND (leased_until IS NULL OR leased_until < now()) AND {served}
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
_LAPSED = "SELECT count(*) FROM {table} WHERE run = %(run)s AND {waiting} AND leased_until <= now()"
_REPEATED = """
    SELECT coalesce(sum(attempts - 1), 0) FROM (
        SELECT attempts FROM proposals WHERE run = %(run)s
        UNION ALL SELECT attempts FROM trials WHERE run = %(run)s
    ) AS begun WHERE attempts > 1
"""
_WAITING = {"proposals": "state = 'planned'", "trials": "evaluation IS NULL AND NOT withdrawn"}
_COLUMNS = {"proposals": "id, fleet", "trials": "id, cohort, stage, fleet"}


class Withdrawal:
    """The stop of one leased step; see `app.ports.protocols.Stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acts: list[Callable[[], None]] = []
        self.asked = False

    def ask(self) -> None:
        """Asks the step to stop, in whatever it does now.  Idempotent."""
        with self._lock:
            if not self.asked:
                self.asked = True
                for act in self._acts:
                    act()

    @contextmanager
    def then(self, act: Callable[[], None]) -> Iterator[None]:
        """See `app.ports.protocols.Stop.then`."""
        with self._lock:
            self._acts.append(act)
            if self.asked:
                act()
        try:
            yield
        finally:
            with self._lock:
                self._acts.remove(act)


class LeaseRenewer:
    """Renews what this process holds, a third into each lease, and stops what was withdrawn.

    A notice of the ledger makes it look at once which steps are to stop; it looks at each renewal,
    too, because notices are lost with their connection.

    The threads start with the first lease and are daemons: a process that dies renews nothing,
    which is how its work is found again.

    Args:
      store: The ledger that holds the leases.
      lease_seconds: Length of a lease; > 0.
      listen: Yields whenever something may have been withdrawn, and often enough in between to end
        with the process; None: withdrawals are found at renewals only.
    """

    def __init__(
        self,
        store: Store,
        lease_seconds: float,
        listen: Callable[[], Iterator[bool]] | None = None,
    ) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._listen = listen
        self._held: dict[Withdrawal, tuple[LeaseKind, int]] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._drained = False

    @contextmanager
    def keep(self, kind: LeaseKind, subject: int) -> Iterator[Withdrawal]:
        """Keeps a lease alive while the context is open; yields the stop of its step."""
        withdrawal = Withdrawal()
        with self._lock:
            self._held[withdrawal] = kind, subject
            if not self._threads:
                self._begin(self._renew, "leases")
                if self._listen is not None:
                    self._begin(partial(self._wait, self._listen), "withdrawals")
            drained = self._drained
        if drained:
            withdrawal.ask()
        try:
            yield withdrawal
        finally:
            with self._lock:
                del self._held[withdrawal]

    def drain(self) -> None:
        """Asks every step of this process to stop, from now on: its lease is given back."""
        with self._lock:
            self._drained = True
            held = list(self._held)
        for withdrawal in held:
            withdrawal.ask()

    def close(self) -> None:
        """Stops renewing, and waits for the threads to end.  Idempotent."""
        self._closed.set()
        for thread in self._threads:
            thread.join(_ENDING_SECONDS)

    def _begin(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _renew(self) -> None:
        while not self._closed.wait(self._lease_seconds / 3):
            try:
                self._look(renewing=True)
            except Unavailable as error:
                _LOG.warning("leases not renewed, trying again: %s", error)

    def _wait(self, listen: Callable[[], Iterator[bool]]) -> None:
        """Looks whenever the ledger notifies, and each time it is connected anew."""
        while not self._closed.is_set():
            try:
                for notified in listen():
                    if self._closed.is_set():
                        return
                    if notified:
                        self._look()
            except Unavailable as error:
                _LOG.warning("withdrawals are found at renewals, until it works: %s", error)
                self._closed.wait(_AGAIN_SECONDS)

    def _look(self, *, renewing: bool = False) -> None:
        """Asks the steps that were withdrawn to stop; may renew all leases before."""
        with self._lock:
            held = dict(self._held)
        proposals = sorted({subject for kind, subject in held.values() if kind == "proposal"})
        trials = sorted({subject for kind, subject in held.values() if kind == "trial"})
        if not held:
            return
        with self._store.begin() as tx:
            if renewing:
                tx.leases.renew(proposals, trials, self._lease_seconds)
            found = dict(
                zip(("proposal", "trial"), tx.leases.withdrawn(proposals, trials), strict=True)
            )
        for withdrawal, (kind, subject) in held.items():
            if subject in found[kind]:
                withdrawal.ask()


class SqlLeases:
    """See `app.ports.leases.Leases`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def renew(
        self, proposals: Sequence[ProposalId], trials: Sequence[TrialId], lease_seconds: float
    ) -> None:
        for table, ids in (("proposals", proposals), ("trials", trials)):
            if ids:
                self._c.write(
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
        for release, ids in ((_RELEASE_PROPOSALS, proposals), (_RELEASE_TRIALS, trials)):
            if ids:
                self._c.write(
                    release,
                    {"ids": sorted(ids), "retry": retry_seconds, "uncounted": 0 if counted else 1},
                )

    def withdraw(self, cohorts: Sequence[CohortId] = ()) -> None:
        if cohorts:
            self._c.write(_WITHDRAW, {"cohorts": list(cohorts)})
        self._c.value(_NOTIFY, {"channel": CHANNEL})

    def withdraw_trials(self, trials: Sequence[TrialId]) -> None:
        self._c.write(_WITHDRAW_TRIALS, {"trials": list(trials)})
        self._c.value(_NOTIFY, {"channel": CHANNEL})

    def announce(self) -> None:
        self._c.value(_NOTIFY, {"channel": ENDED_CHANNEL})

    def withdrawn(
        self, proposals: Sequence[ProposalId], trials: Sequence[TrialId]
    ) -> tuple[list[ProposalId], list[TrialId]]:
        held = {"proposals": list(proposals), "trials": list(trials)}
        found = {
            table: self._c.values(_WITHDRAWN[table], {"ids": ids}) if ids else []
            for table, ids in held.items()
        }
        return found["proposals"], found["trials"]

    def runs(self, proposals: Sequence[ProposalId], trials: Sequence[TrialId]) -> list[int]:
        return self._c.values(_RUNS, {"proposals": list(proposals), "trials": list(trials)})

    def overdue(
        self, run: int, redeliver_seconds: float, limit: int = 1000
    ) -> tuple[dict[ProposalId, str], list[WaitingTrial]]:
        result = {}
        params = {"run": run, "again": redeliver_seconds, "limit": limit, "live": LIVE_SECONDS}
        for table, waiting_if in _WAITING.items():
            query = _OVERDUE.format(
                table=table,
                waiting=waiting_if,
                columns=_COLUMNS[table],
                served=SERVED.format(queue=QUEUE[table]),
            )
            result[table] = self._c.rows(query, params)
        proposals = {row.id: row.fleet for row in sorted(result["proposals"])}
        return proposals, waiting(result["trials"])

    def held(self, run: int) -> int:
        return sum(
            self._c.value(_HELD.format(table=table, waiting=waiting_if), {"run": run})
            for table, waiting_if in _WAITING.items()
        )

    def lapsed(self, run: int) -> int:
        return sum(
            self._c.value(_LAPSED.format(table=table, waiting=waiting_if), {"run": run})
            for table, waiting_if in _WAITING.items()
        )

    def repeated(self, run: int) -> int:
        return int(self._c.value(_REPEATED, {"run": run}))

    def forget_attempts(self, run: int, *, keep_leases: bool = False) -> None:
        params = {"run": run, "kept": keep_leases}
        for table, waiting_if in _WAITING.items():
            self._c.write(_FORGET.format(table=table, waiting=waiting_if), params)
