"""Planning: what of a run is unsettled, and the cohorts that are added to it."""

from collections.abc import Sequence

from sqlalchemy import Connection

from app.adapters.store.cohorts import draft_columns
from app.adapters.store.driver import rows, value, values, write
from app.adapters.store.runs import count_planned
from app.domain.search.cohort import CohortId
from app.ports.records import Backlog, Plan

_BACKLOG = """
    SELECT island, state, ordinal < 0 AS founding, count(*) AS n FROM proposals
    WHERE run = %(run)s AND state IN ('planned', 'testing') GROUP BY 1, 2, 3
"""
_WAITING = """
    SELECT operator, count(*) AS n FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
    WHERE proposals.run = %(run)s AND proposals.state = 'planned' GROUP BY 1
"""
_LASTS = """
    SELECT coalesce(avg(extract(epoch FROM settled_at - planned_at)), 0)::float8 FROM (
        SELECT settled_at, planned_at FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
        WHERE proposals.run = %(run)s AND settled_at IS NOT NULL AND ordinal >= 0
        ORDER BY settled_at DESC, proposals.id DESC LIMIT %(over)s
    ) AS newest
"""
_ADD_COHORTS = """
    INSERT INTO cohorts (run, island, operator, founding, visible_at)
    SELECT %(run)s, island, operator, founding, now() + %(again)s * interval '1 second'
    FROM unnest(CAST(%(islands)s AS int[]), CAST(%(operators)s AS text[]), CAST(%(founding)s
        AS bool[]))
        WITH ORDINALITY AS plan(island, operator, founding, place)
    ORDER BY place RETURNING id
"""
_ADD_PROPOSALS = """
    INSERT INTO proposals (run, cohort, island, ordinal, state)
    SELECT %(run)s, cohort, island, ordinal, 'planned'
    FROM unnest(CAST(%(cohorts)s AS bigint[]), CAST(%(islands)s AS int[]), CAST(%(ordinals)s
        AS int[]))
        AS plan(cohort, island, ordinal)
"""
_DRAFT = """
    UPDATE proposals SET epoch = %(epoch)s, generation = %(generation)s, parents = %(parents)s,
        inspirations = %(inspirations)s
    WHERE cohort = %(cohort)s AND ordinal = %(ordinal)s
"""
_UNSETTLED = """
    SELECT DISTINCT cohort FROM proposals
    WHERE run = %(run)s AND state IN ('planned', 'testing') ORDER BY cohort
"""


def backlog(c: Connection, run: int) -> Backlog:
    states = {"planned": 0, "testing": 0}
    islands: dict[int, int] = {}
    founding = 0
    for one in rows(c, _BACKLOG, {"run": run}):
        states[one.state] += one.n
        if one.founding:
            founding += one.n
        else:
            islands[one.island] = islands.get(one.island, 0) + one.n
    return Backlog(states["planned"], states["testing"], islands, founding)


def waiting(c: Connection, run: int) -> dict[str, int]:
    return {one.operator: one.n for one in rows(c, _WAITING, {"run": run})}


def lasts_seconds(c: Connection, run: int, over: int) -> float:
    return float(value(c, _LASTS, {"run": run, "over": over}))


def add_cohorts(c: Connection, run: int, plans: Sequence[Plan], again: float) -> list[CohortId]:
    added = values(
        c,
        _ADD_COHORTS,
        {
            "run": run,
            "again": again,
            "islands": [plan.island for plan in plans],
            "operators": [plan.operator for plan in plans],
            "founding": [plan.founding for plan in plans],
        },
    )
    ids = sorted(added)
    members = [
        (cohort, plan.island, ordinal)
        for cohort, plan in zip(ids, plans, strict=True)
        for ordinal in plan.ordinals
    ]
    write(
        c,
        _ADD_PROPOSALS,
        {
            "run": run,
            "cohorts": [cohort for cohort, _, _ in members],
            "islands": [island for _, island, _ in members],
            "ordinals": [ordinal for _, _, ordinal in members],
        },
    )
    for cohort, plan in zip(ids, plans, strict=True):
        for one in plan.drafts:
            write(c, _DRAFT, {"cohort": cohort, "ordinal": one.ordinal, **draft_columns(one)})
    counted = [plan for plan in plans if not plan.founding]
    if counted:
        count_planned(c, run, len(counted), sum(len(plan.ordinals) for plan in counted))
    return ids


def unsettled(c: Connection, run: int) -> list[CohortId]:
    return values(c, _UNSETTLED, {"run": run})
