"""Workers in the ledger: their places and their time by run, and the recorder in each worker.

A worker writes totals, so that writing the same total twice changes nothing.
"""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from app.adapters.store.codec import clean
from app.adapters.store.driver import DriverConnection, Record
from app.domain.scaling import Fleet
from app.domain.secrets import redacted
from app.ports.protocols import Protection, Store, Unavailable
from app.ports.workers import (
    LIVE_SECONDS,
    PRESENT_SECONDS,
    Capacity,
    Presence,
    QueueDemand,
    Worker,
    WorkerTime,
)

_LOG = logging.getLogger(__name__)

ENDING_SECONDS = 1.0
"""How long the end of a worker waits for its look at a sandbox, which may be booting."""
INTERVAL_SECONDS = 3.0
"""The most time that a killed worker loses; each interval costs a worker one small statement."""

_SEEN = """
    INSERT INTO workers
        (id, kind, usd_per_hour, model_places, sandbox_places, settings, protections, fault, queues)
    VALUES (%(worker)s, %(kind)s, %(usd)s, %(model)s, %(sandbox)s,
        CAST(%(settings)s AS jsonb), CAST(%(protections)s AS jsonb), %(fault)s, %(queues)s)
    ON CONFLICT ON CONSTRAINT workers_key DO UPDATE SET seen_at = now(),
        model_places = excluded.model_places, sandbox_places = excluded.sandbox_places,
        protections = excluded.protections, fault = excluded.fault
"""
_SPENT = """
    INSERT INTO worker_times (worker, run, seconds)
    SELECT %(worker)s, run, seconds
    FROM unnest(CAST(%(runs)s AS bigint[]), CAST(%(seconds)s AS float8[])) AS spent(run, seconds)
    ON CONFLICT ON CONSTRAINT worker_times_worker_once
        DO UPDATE SET seconds = greatest(worker_times.seconds, excluded.seconds)
"""
_CAPACITY = """
    SELECT sum(model_places)::int AS model, sum(sandbox_places)::int AS sandbox
    FROM workers WHERE seen_at > now() - %(live)s * interval '1 second'
"""
_PRESENCE = """
    SELECT
        coalesce(bool_or(model_places IS NOT NULL AND present), false) AS generating,
        coalesce(bool_or(sandbox_places IS NOT NULL AND present), false) AS evaluating,
        array_remove(array_agg(DISTINCT fault), '') AS faults,
        (SELECT array_agg(DISTINCT queue) FROM workers CROSS JOIN unnest(queues) AS queue
            WHERE coalesce(model_places, sandbox_places) IS NOT NULL
                AND seen_at > now() - %(present)s * interval '1 second') AS queues
    FROM (
        SELECT *, seen_at > now() - %(present)s * interval '1 second' AS present FROM workers
        WHERE seen_at > now() - %(live)s * interval '1 second'
    ) AS live
"""
_DEMAND = "SELECT * FROM demand WHERE run = {run} ORDER BY run, queue, tag"
_FLEETS = """
    SELECT queue, tag, count(*) FILTER (WHERE live AND places IS NOT NULL) AS workers,
        (avg(places) FILTER (WHERE live AND places > 0))::float8 AS places,
        (array_agg(usd_per_hour ORDER BY seen_at DESC)
            FILTER (WHERE kind = queue AND served AND usd_per_hour IS NOT NULL))[1] AS usd_per_hour
    FROM (
        SELECT *, seen_at > now() - %(live)s * interval '1 second' AS live
        FROM workers ORDER BY seen_at DESC LIMIT 1000
    ) AS newest
    CROSS JOIN LATERAL (
        SELECT DISTINCT split_part(name, ':', 1) AS queue, split_part(name, ':', 2) AS tag,
            name = ANY(queues) AS served,
            CASE WHEN name <> ALL(queues) THEN NULL WHEN name LIKE 'gpu%%' THEN model_places
                ELSE sandbox_places END AS places
        FROM unnest(queues || ARRAY['gpu', 'cpu']) AS name WHERE name <> 'control'
    ) AS of
    GROUP BY queue, tag ORDER BY queue DESC, tag
"""
_REPORTS = """
    SELECT id, kind, usd_per_hour, settings::text AS settings, protections::text AS protections,
        fault, queues
    FROM workers WHERE {whose} ORDER BY id
"""
_EVALUATING = _REPORTS.format(
    whose="sandbox_places IS NOT NULL AND seen_at > now() - %(live)s * interval '1 second'"
)
_LIVE = _REPORTS.format(whose="seen_at > now() - %(live)s * interval '1 second'")
_AT_WORK = _REPORTS.format(
    whose="""id IN (SELECT worker FROM worker_times WHERE run = %(run)s)
        OR seen_at > now() - %(live)s * interval '1 second'"""
)
"""A live worker may not have written down yet which runs it works for."""
_TIMES = """
    SELECT kind, count(DISTINCT worker) AS workers, sum(seconds) AS seconds,
        sum(seconds * usd_per_hour) / 3600 AS cost_usd,
        coalesce(sum(seconds) FILTER (WHERE usd_per_hour IS NULL), 0) AS unpriced_seconds
    FROM worker_times JOIN workers ON workers.id = worker
    WHERE {whose} GROUP BY kind ORDER BY kind
"""
_OF_RUN = _TIMES.format(whose="run = %(run)s")
_IDLE = _TIMES.format(whose="run IS NULL")
_BUSY = _TIMES.format(whose="run IS NOT NULL")


class SqlWorkers:
    """See `app.ports.workers.Workers`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def record(self, worker: Worker, seconds: Mapping[int | None, float], places: Capacity) -> None:
        seen = {
            "worker": worker.id,
            "kind": worker.kind,
            "usd": worker.usd_per_hour,
            "model": places.model,
            "sandbox": places.sandbox,
            "settings": json.dumps(dict(worker.settings)),
            "protections": None if worker.protections is None else json.dumps(worker.protections),
            "fault": clean(worker.fault),
            "queues": list(worker.queues),
        }
        self._c.write(_SEEN, seen)
        spent = sorted(seconds.items(), key=lambda item: -1 if item[0] is None else item[0])
        runs, totals = [run for run, _ in spent], [total for _, total in spent]
        self._c.write(_SPENT, {"worker": worker.id, "runs": runs, "seconds": totals})

    def capacity(self) -> Capacity:
        found = self._c.row(_CAPACITY, {"live": LIVE_SECONDS})
        return Capacity(found.model, found.sandbox)

    def presence(self) -> Presence:
        found = self._c.row(_PRESENCE, {"live": LIVE_SECONDS, "present": PRESENT_SECONDS})
        queues = frozenset(found.queues or ())
        return Presence(found.generating, found.evaluating, tuple(found.faults or ()), queues)

    def demand(self, run: int | None = None) -> list[QueueDemand]:
        query = _DEMAND.format(run="run" if run is None else "%(run)s")
        return [QueueDemand(*row) for row in self._c.rows(query, {"run": run})]

    def fleets(self) -> list[Fleet]:
        return [Fleet(*row) for row in self._c.rows(_FLEETS, {"live": LIVE_SECONDS})]

    def evaluating(self) -> list[Worker]:
        return [_worker(row) for row in self._c.rows(_EVALUATING, {"live": LIVE_SECONDS})]

    def live(self) -> list[Worker]:
        return [_worker(row) for row in self._c.rows(_LIVE, {"live": LIVE_SECONDS})]

    def at_work_for(self, run: int) -> list[Worker]:
        return [_worker(row) for row in self._c.rows(_AT_WORK, {"run": run, "live": LIVE_SECONDS})]

    def of_run(self, run: int) -> list[WorkerTime]:
        return [_worker_time(row) for row in self._c.rows(_OF_RUN, {"run": run})]

    def busy(self) -> list[WorkerTime]:
        return [_worker_time(row) for row in self._c.rows(_BUSY, {})]

    def idle(self) -> list[WorkerTime]:
        return [_worker_time(row) for row in self._c.rows(_IDLE, {})]


def _worker(row: Record) -> Worker:
    known = None if row.protections is None else json.loads(row.protections)
    protections = None if known is None else tuple((name, remedy) for name, remedy in known)
    settings = json.loads(row.settings)
    queues = tuple(row.queues)
    return Worker(row.id, row.kind, row.usd_per_hour, settings, protections, row.fault, queues)


def _worker_time(row: Record) -> WorkerTime:
    return WorkerTime(row.kind, row.workers, row.seconds, row.cost_usd, row.unpriced_seconds)


class WorkerTimeRecorder:
    """Divides a worker's time among the runs it works for, at each moment by its steps in progress.

    Time without a step belongs to no run.  The sum over all is the time since the start.  Totals
    are written, so that writing twice changes nothing.  After each write the worker learns whether
    the ledger and its sandbox can be used.

    Args:
      store: The ledger.
      worker: The worker whose time is recorded.
      places: Returns the places that it has now.
      protections: Returns what its sandboxes report, and raises `Unavailable` where none can be
        booted; not asked at the start, when the first trial may be about to boot a sandbox that
        knows.  None: it has no sandbox.
      report: Receives what does not work, `ledger` or `sandbox`, each with the reason; None
        for no reports.
      interval_seconds: Between two writes.
      clock: Seconds that only rise.
    """

    def __init__(
        self,
        store: Store,
        worker: Worker,
        places: Callable[[], Capacity] = Capacity,
        *,
        protections: Callable[[], Sequence[Protection]] | None = None,
        report: Callable[[Mapping[str, str]], None] | None = None,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._worker = worker
        self._places = places
        self._protections = protections
        self._report = report
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._open: Counter[int] = Counter()
        self._seconds: dict[int | None, float] = {}
        self._unwritten: set[int | None] = set()
        self._seen = clock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-time", daemon=True)

    def start(self) -> None:
        """Begins to write."""
        self._thread.start()

    @contextmanager
    def work(self, run: int) -> Iterator[None]:
        """Counts a step for the run while the context is open."""
        self._turn(run, 1)
        try:
            yield
        finally:
            self._turn(run, -1)

    def close(self) -> None:
        """Writes a last time, that there are no places any more.  Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            if self._thread.is_alive():
                self._thread.join(ENDING_SECONDS)
            self._places = Capacity
            self.write()

    def write(self) -> None:
        """Writes places and changed totals; after an outage they are written the next time."""
        self._turn(None, 0)
        with self._lock:
            changed, self._unwritten = self._unwritten, set()
            totals = {run: self._seconds[run] for run in changed}
        fault = self._worker.fault
        lacking = {"sandbox": fault} if fault else {}
        try:
            with self._store.begin() as tx:
                tx.workers.record(self._worker, totals, self._present_places())
        except Unavailable as error:
            _LOG.warning("worker seconds not written, trying again: %s", error)
            lacking["ledger"] = str(error)
            with self._lock:
                self._unwritten |= changed
        if self._report is not None:
            self._report(lacking)

    def _present_places(self) -> Capacity:
        """Returns the places that this worker has now; none in sandboxes that do not boot."""
        places = self._places()
        return replace(places, sandbox=None) if self._worker.fault else places

    def _turn(self, run: int | None, step: int) -> None:
        """Assigns the time since the last turn to the runs in progress; then counts the step."""
        with self._lock:
            now = self._clock()
            passed, self._seen = now - self._seen, now
            if passed > 0:
                self._share(passed)
            if run is not None:
                self._open[run] += step
                # Adding an empty counter drops the runs without a step.
                self._open += Counter()

    def _share(self, passed: float) -> None:
        steps = self._open.total()
        shares: dict[int | None, float] = (
            {run: n / steps for run, n in self._open.items()} if steps else {None: 1.0}
        )
        for run, share in shares.items():
            self._seconds[run] = self._seconds.get(run, 0.0) + passed * share
        self._unwritten |= set(shares)

    def _run(self) -> None:
        self.write()
        while not self._closed.wait(self._interval_seconds):
            self._try_sandbox()
            self.write()

    def _try_sandbox(self) -> None:
        if self._protections is None:
            return
        try:
            found = self._protections()
        except Unavailable as error:
            self._worker = replace(
                self._worker, fault=f"no sandbox can be booted: {redacted(str(error))}"
            )
            return
        known = tuple((protection.name, protection.remedy) for protection in found)
        self._worker = replace(self._worker, protections=known, fault="")
