"""How fast a run's proposals pass, and how many may be in flight for it."""

from dataclasses import asdict

from sqlalchemy import Connection

from app.adapters.store.driver import row, write
from app.domain.search.back_pressure import Flow, InFlightLimits

SAMPLED = 32
"""Proposals that the mean times are taken over: two lookups each."""

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
_SET_LIMITS = """
    UPDATE runs SET generating = %(generating)s, evaluating = %(evaluating)s,
        generate_batch = %(generate_batch)s, evaluate_batch = %(evaluate_batch)s
    WHERE id = %(run)s
"""


def flow(c: Connection, run: int, settled: int) -> Flow | None:
    if settled < 2:
        return None
    found = row(c, _FLOW, {"run": run, "settled": settled, "sampled": SAMPLED})
    if found is None or found.span is None:
        return None
    return Flow(
        settled, found.span, float(found.generating), float(found.evaluating), found.testing
    )


def set_limits(c: Connection, run: int, limits: InFlightLimits) -> None:
    write(c, _SET_LIMITS, {"run": run, **asdict(limits)})
