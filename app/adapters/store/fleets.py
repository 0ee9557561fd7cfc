"""Fleets and projects: which queues are served, and what projects may use."""

from dataclasses import asdict

from app.adapters.store.driver import DriverConnection
from app.domain.prompting.judging import STAGE
from app.domain.search.fleets import FleetRules
from app.domain.search.quotas import ProjectUse, Quota
from app.ports.workers import LIVE_SECONDS

PLACES = """
    SELECT queue, sum(CASE WHEN queue LIKE 'gpu%%' THEN model_places ELSE sandbox_places END)::int
        AS places
    FROM workers CROSS JOIN unnest(queues) AS queue
    WHERE seen_at > now() - %(live)s * interval '1 second' GROUP BY queue
"""
"""The places of each queue; null where no worker of it has any."""
QUEUE = {
    "proposals": "concat_ws(':', 'gpu', nullif(fleet, ''))",
    "trials": (
        f"concat_ws(':', CASE stage WHEN '{STAGE}' THEN 'gpu' ELSE 'cpu' END, nullif(fleet, ''))"
    ),
}
"""The queue of a step, by table."""
SERVED = """
    (fleet = '' OR EXISTS (
        SELECT FROM workers WHERE {queue} = ANY(queues)
            AND coalesce(model_places, sandbox_places) IS NOT NULL
            AND seen_at > now() - %(live)s * interval '1 second'
    ))
"""
"""Whether a step with a label has a live worker; one without a label is always enqueued."""
_MOVE = """
    UPDATE {table} SET fleet = labels[1 + island %% cardinality(labels)]{due}
    FROM (SELECT CAST(%(labels)s AS text[]) AS labels) AS given
    WHERE id IN (
        SELECT id FROM {table} WHERE run = %(run)s AND {which}
            AND fleet <> ALL(CAST(%(labels)s AS text[]))
        ORDER BY id FOR NO KEY UPDATE
    )
"""
_DUE = ", visible_at = now()"
_FREE = "visible_at IS NOT NULL AND (leased_until IS NULL OR leased_until < now())"
_TRIALS = f"{_FREE} AND evaluation IS NULL AND NOT withdrawn AND stage"


class SqlFleets:
    """See `app.ports.fleets.Fleets`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def places(self) -> dict[str, int]:
        found = self._c.rows(PLACES, {"live": LIVE_SECONDS})
        return {row.queue: row.places for row in found if row.places is not None}

    def move(self, run: int, rules: FleetRules) -> None:
        for table, which, labels, due in (
            ("proposals", f"{_FREE} AND state = 'planned'", rules.generating, _DUE),
            ("proposals", "state = 'testing'", rules.trials, ""),
            ("trials", f"{_TRIALS} <> '{STAGE}'", rules.trials, _DUE),
            ("trials", f"{_TRIALS} = '{STAGE}'", (rules.judging,), _DUE),
        ):
            statement = _MOVE.format(table=table, which=which, due=due)
            self._c.write(statement, {"run": run, "labels": list(labels)})


_QUOTA = """
    SELECT name AS project, weight, runs, proposals, tokens_per_day, usd_per_day FROM projects
"""
_ONE_QUOTA = f"{_QUOTA} WHERE name = %(project)s"
_QUOTAS = f"{_QUOTA} ORDER BY name"
_NAMED = "SELECT DISTINCT project FROM runs WHERE project <> '' ORDER BY project"
_PUT = """
    INSERT INTO projects (name, weight, runs, proposals, tokens_per_day, usd_per_day)
    VALUES (%(project)s, %(weight)s, %(runs)s, %(proposals)s, %(tokens_per_day)s, %(usd_per_day)s)
    ON CONFLICT (name) DO UPDATE SET weight = excluded.weight, runs = excluded.runs,
        proposals = excluded.proposals, tokens_per_day = excluded.tokens_per_day,
        usd_per_day = excluded.usd_per_day
"""
_REMOVE = "DELETE FROM projects WHERE name = %(project)s"
_LOCK = "SELECT pg_advisory_xact_lock(%(space)s, hashtext(%(project)s))"
_PROJECTS = 0x65766F73
"""First key of the advisory lock on a project; the second is a hash of its name."""
TODAY = "(now() AT TIME ZONE 'UTC')::date"
_BEGIN_DAY = f"""
    INSERT INTO project_days (run, day, tokens, cost_usd)
    SELECT id, {TODAY}, tokens * before, cost_usd * before FROM (
        SELECT *, ((created_at AT TIME ZONE 'UTC')::date < {TODAY})::int AS before FROM runs
    ) AS runs
    WHERE id = %(run)s AND parent IS NULL ON CONFLICT DO NOTHING
"""
_USE = f"""
    WITH going AS (
        SELECT id, priority, parent FROM runs
        WHERE project = %(project)s AND state = 'running' AND NOT in_process
    ), spent AS (
        SELECT coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(cost_usd), 0)::float8 AS usd
        FROM (
            SELECT runs.tokens - day.tokens AS tokens, runs.cost_usd - day.cost_usd AS cost_usd
            FROM project_days AS day JOIN runs ON runs.id = day.run
            WHERE day.day = {TODAY} AND runs.project = %(project)s
            UNION ALL
            SELECT tokens, cost_usd FROM deletions
            WHERE project = %(project)s AND swept_at >= {TODAY}::timestamp AT TIME ZONE 'UTC'
        ) AS by_run
    )
    SELECT tokens, usd, (SELECT count(*) FROM going WHERE parent IS NULL) AS runs,
        (SELECT count(*) FROM proposals WHERE state IN ('planned', 'testing')
            AND run IN (SELECT id FROM going)) AS proposals,
        (SELECT count(*) FROM going JOIN going AS mine ON mine.id = %(run)s
            WHERE going.parent IS NULL AND mine.parent IS NULL
                AND (-going.priority, going.id) < (-mine.priority, mine.id)) AS ahead
    FROM spent
"""


class SqlProjects:
    """See `app.ports.fleets.Projects`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def quota(self, project: str) -> Quota | None:
        found = self._c.row(_ONE_QUOTA, {"project": project})
        return Quota(**found._asdict()) if found else None

    def quotas(self) -> list[Quota]:
        return [Quota(**found._asdict()) for found in self._c.rows(_QUOTAS, {})]

    def named(self) -> list[str]:
        return self._c.values(_NAMED, {})

    def put(self, quota: Quota) -> None:
        self._c.write(_PUT, asdict(quota))

    def remove(self, project: str) -> bool:
        return self._c.write(_REMOVE, {"project": project}) == 1

    def lock(self, project: str) -> None:
        self._c.value(_LOCK, {"space": _PROJECTS, "project": project})

    def begin_day(self, run: int) -> None:
        self._c.write(_BEGIN_DAY, {"run": run})

    def use(self, project: str, run: int | None = None) -> ProjectUse:
        found = self._c.row(_USE, {"project": project, "run": run})
        return ProjectUse(found.runs, found.proposals, found.tokens, found.usd, found.ahead)
