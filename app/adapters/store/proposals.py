"""Counts and speed of a run's proposals: what planning and reports read."""

from sqlalchemy import Connection

from app.adapters.store.driver import row, rows, value
from app.domain.search.back_pressure import Flow
from app.ports.records import Backlog

SAMPLED = 32
"""Proposals that the mean times are taken over: two lookups each."""

_BACKLOG = """
    SELECT island, state, ordinal < 0 AS founding, count(*) AS n FROM proposals
    WHERE run = %(run)s AND state IN ('planned', 'testing') GROUP BY 1, 2, 3
"""
_WAITING = """
    SELECT operator, count(*) AS n FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
    WHERE proposals.run = %(run)s AND proposals.state = 'planned' GROUP BY 1
"""
_MEAN_SECONDS = """
    SELECT coalesce(avg(extract(epoch FROM settled_at - planned_at)), 0)::float8 FROM (
        SELECT settled_at, planned_at FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
        WHERE proposals.run = %(run)s AND settled_at IS NOT NULL AND ordinal >= 0
        ORDER BY settled_at DESC, proposals.id DESC LIMIT %(over)s
    ) AS newest
"""
_FLOW = """
    WITH first AS (
        SELECT settled_at FROM (
            SELECT settled_at, id FROM proposals
            WHERE run = %(run)s AND settled_at IS NOT NULL
            ORDER BY settled_at DESC, id DESC LIMIT %(settled)s
        ) AS newest ORDER BY settled_at, id LIMIT 1
    ), sampled AS (
        SELECT cohort, program FROM proposals
        WHERE run = %(run)s AND settled_at IS NOT NULL
        ORDER BY settled_at DESC, id DESC LIMIT least(%(settled)s, %(sampled)s)
    )
    SELECT extract(epoch FROM clock_timestamp() - (SELECT settled_at FROM first))::float8 AS span,
        avg(asked.seconds) AS generating, avg(tested.seconds) AS evaluating,
        (SELECT count(*) FROM trials WHERE run = %(run)s AND evaluation IS NULL
            AND leased_until > now()) AS testing
    FROM sampled CROSS JOIN LATERAL (
        SELECT coalesce(sum(turn.seconds), 0) AS seconds FROM (
            SELECT max(latency_seconds) AS seconds FROM completions
            WHERE completions.cohort = sampled.cohort AND NOT reused GROUP BY turn
        ) AS turn
    ) AS asked CROSS JOIN LATERAL (
        SELECT coalesce(sum(wall_seconds), 0) AS seconds FROM trials
        WHERE trials.cohort = sampled.cohort AND sampled.program = ANY(trials.players)
    ) AS tested
"""
"""The prompts of one turn are asked side by side: a turn takes as long as its slowest."""


class SqlProposals:
    """See `app.ports.ledger.Proposals`."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def backlog(self, run: int) -> Backlog:
        states = {"planned": 0, "testing": 0}
        islands: dict[int, int] = {}
        founding = 0
        for one in rows(self._c, _BACKLOG, {"run": run}):
            states[one.state] += one.n
            if one.founding:
                founding += one.n
            else:
                islands[one.island] = islands.get(one.island, 0) + one.n
        return Backlog(states["planned"], states["testing"], islands, founding)

    def waiting(self, run: int) -> dict[str, int]:
        return {one.operator: one.n for one in rows(self._c, _WAITING, {"run": run})}

    def flow(self, run: int, settled: int) -> Flow | None:
        if settled < 2:
            return None
        found = row(self._c, _FLOW, {"run": run, "settled": settled, "sampled": SAMPLED})
        if found is None or found.span is None:
            return None
        return Flow(
            settled, found.span, float(found.generating), float(found.evaluating), found.testing
        )

    def mean_seconds(self, run: int, over: int = 32) -> float:
        return float(value(self._c, _MEAN_SECONDS, {"run": run, "over": over}))
