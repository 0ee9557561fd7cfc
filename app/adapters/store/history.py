"""Events, and what reports read."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from app.adapters.store.codec import elite_of, evaluation_of, settled_of
from app.adapters.store.runs import as_json
from app.domain.archive import Elite
from app.domain.cohort import State
from app.domain.evaluation import Evaluation
from app.domain.events import Event, EventKind
from app.domain.program import ProgramId
from app.ledger import Settled

_WRITE = text("""
    WITH numbered AS (
        UPDATE runs SET events = events + :n WHERE id = :run RETURNING events - :n AS before
    )
    INSERT INTO events (run, seq, at, kind, data)
    SELECT :run, before + place, clock_timestamp(), kind, CAST(data AS jsonb)
    FROM numbered, unnest(CAST(:kinds AS text[]), CAST(:data AS text[]))
        WITH ORDINALITY AS event(kind, data, place)
""")
_EVENTS = """
    SELECT seq, kind, data, extract(epoch FROM at - created_at)::float8 AS seconds
    FROM events JOIN runs ON runs.id = events.run
    WHERE events.run = :run AND seq > :after {of_kind} ORDER BY seq LIMIT :limit
"""
_EVERY_EVENT = text(_EVENTS.format(of_kind=""))
_EVENTS_OF_KIND = text(_EVENTS.format(of_kind="AND kind = ANY(:kinds)"))
_SETTLED = """
    SELECT proposals.*, cohorts.operator,
        extract(epoch FROM proposals.settled_at - runs.created_at)::float8 AS seconds,
        spent.wall_seconds, spent.cpu_seconds
    FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
        JOIN runs ON runs.id = proposals.run
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(wall_seconds), 0) AS wall_seconds,
                coalesce(sum(cpu_seconds), 0) AS cpu_seconds
            FROM trials
            WHERE trials.cohort = proposals.cohort AND proposals.program = ANY(trials.players)
        ) AS spent
    WHERE proposals.run = :run AND {which}
"""
_HISTORY = text(
    _SETTLED.format(which="settled_at IS NOT NULL")
    + "ORDER BY proposals.settled_at, proposals.id LIMIT :limit OFFSET :after"
)
_FITTEST = text(
    _SETTLED.format(which="proposals.state = 'admitted'")
    + "ORDER BY proposals.fitness DESC, proposals.ordinal LIMIT 1"
)
_BEST_FITNESS = text("""
    SELECT fitness FROM proposals WHERE run = :run AND state = 'admitted'
    ORDER BY fitness DESC LIMIT 1
""")
_PLACED = text(
    _SETTLED.format(which="proposals.state = 'admitted'")
    + "ORDER BY proposals.ordinal LIMIT :limit"
)
_EVALUATED = text("""
    SELECT cohort, evaluation FROM trials
    WHERE cohort = ANY(:cohorts) AND evaluation IS NOT NULL ORDER BY id
""")
_OF_PROGRAM = text("""
    SELECT evaluation FROM trials
    WHERE run = :run AND evaluation IS NOT NULL AND :program = ANY(players)
        AND cohort IN (SELECT cohort FROM proposals WHERE run = :run AND program = :program)
    ORDER BY id
""")
_STATES = text(
    "SELECT state, count(*) AS n FROM proposals WHERE run = :run AND ordinal >= 0 GROUP BY 1"
)
_FAILURES = text("""
    SELECT failure_kind, count(*) AS n FROM proposals
    WHERE run = :run AND state = 'failed' AND ordinal >= 0 GROUP BY 1 ORDER BY 2 DESC, 1
""")
_ELITES = text("SELECT * FROM elites WHERE run = :run ORDER BY island, number, rank")


def write_events(
    c: Connection, run: int, batch: Sequence[tuple[EventKind, Mapping[str, Any]]]
) -> None:
    """Numbers and stores a batch under the run's row lock, which the caller's commit ends."""
    c.execute(
        _WRITE,
        {
            "run": run,
            "n": len(batch),
            "kinds": [kind.value for kind, _ in batch],
            "data": [as_json(dict(data)) for _, data in batch],
        },
    )


def events(
    c: Connection, run: int, after: int, limit: int, kinds: Sequence[EventKind]
) -> list[Event]:
    told = {"run": run, "after": after, "limit": limit}
    if kinds:
        rows = c.execute(_EVENTS_OF_KIND, {**told, "kinds": [kind.value for kind in kinds]})
    else:
        rows = c.execute(_EVERY_EVENT, told)
    return [Event(row.seq, EventKind(row.kind), row.seconds, row.data) for row in rows]


def settled(c: Connection, run: int, after: int, limit: int) -> list[Settled]:
    rows = c.execute(_HISTORY, {"run": run, "after": after, "limit": limit})
    return [settled_of(row) for row in rows]


def best(c: Connection, run: int) -> Settled | None:
    row = c.execute(_FITTEST, {"run": run}).first()
    return settled_of(row) if row else None


def best_fitness(c: Connection, run: int) -> float | None:
    return c.execute(_BEST_FITNESS, {"run": run}).scalar()


def placed(c: Connection, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
    rows = c.execute(_PLACED, {"run": run, "limit": limit}).all()
    tested: dict[int, list[Evaluation]] = {}
    for row in c.execute(_EVALUATED, {"cohorts": sorted({row.cohort for row in rows})}):
        evaluation = evaluation_of(row.evaluation)
        if evaluation is not None:
            tested.setdefault(row.cohort, []).append(evaluation)
    return [
        (settled_of(row), [e for e in tested.get(row.cohort, []) if row.program in e.scores])
        for row in rows
    ]


def states(c: Connection, run: int) -> dict[State, int]:
    return {State(row.state): row.n for row in c.execute(_STATES, {"run": run})}


def failures(c: Connection, run: int) -> dict[str, int]:
    return {row.failure_kind: row.n for row in c.execute(_FAILURES, {"run": run})}


def elites(c: Connection, run: int) -> list[tuple[int, Elite]]:
    return [(row.island, elite_of(row)) for row in c.execute(_ELITES, {"run": run})]


def evaluations(c: Connection, run: int, program: ProgramId) -> list[Evaluation]:
    rows = c.execute(_OF_PROGRAM, {"run": run, "program": program})
    return [e for row in rows if (e := evaluation_of(row.evaluation)) is not None]
