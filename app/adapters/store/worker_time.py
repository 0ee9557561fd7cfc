"""What workers spent, by run; a worker writes its totals now and then, so that twice is as once."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from app.adapters.store.driver import rows, write
from app.ports.records import Worker, WorkerTime

_RECORD = """
    INSERT INTO shifts (worker, kind, usd_per_hour, run, seconds)
    SELECT %(worker)s, %(kind)s, %(usd)s, run, seconds
    FROM unnest(CAST(%(runs)s AS bigint[]), CAST(%(seconds)s AS float8[])) AS spent(run, seconds)
    ON CONFLICT ON CONSTRAINT shifts_worker_once
        DO UPDATE SET seconds = greatest(shifts.seconds, excluded.seconds), seen_at = now()
"""
_SHIFTS = """
    SELECT kind, count(DISTINCT worker) AS workers, sum(seconds) AS seconds,
        sum(seconds * usd_per_hour) / 3600 AS cost_usd,
        coalesce(sum(seconds) FILTER (WHERE usd_per_hour IS NULL), 0) AS unpriced_seconds
    FROM shifts WHERE {whose} GROUP BY kind ORDER BY kind
"""
_OF_RUN = _SHIFTS.format(whose="run = %(run)s")
_IDLE = _SHIFTS.format(whose="run IS NULL")
_BUSY = _SHIFTS.format(whose="run IS NOT NULL")


def record(c: Connection, worker: Worker, seconds: Mapping[int | None, float]) -> None:
    spent = sorted(seconds.items(), key=lambda one: -1 if one[0] is None else one[0])
    told = {
        "worker": worker.id,
        "kind": worker.kind,
        "usd": worker.usd_per_hour,
        "runs": [run for run, _ in spent],
        "seconds": [total for _, total in spent],
    }
    write(c, _RECORD, told)


def of_run(c: Connection, run: int) -> list[WorkerTime]:
    return [_shift(one) for one in rows(c, _OF_RUN, {"run": run})]


def idle(c: Connection) -> list[WorkerTime]:
    return [_shift(one) for one in rows(c, _IDLE, {})]


def busy(c: Connection) -> list[WorkerTime]:
    return [_shift(one) for one in rows(c, _BUSY, {})]


def _shift(row: Any) -> WorkerTime:
    return WorkerTime(row.kind, row.workers, row.seconds, row.cost_usd, row.unpriced_seconds)
