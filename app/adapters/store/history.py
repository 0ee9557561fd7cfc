"""Events, and what reports read."""

from collections.abc import Sequence

from sqlalchemy import Connection

from app.adapters.store.codec import elite_of, evaluation_of, settled_of
from app.adapters.store.driver import row, rows, write
from app.adapters.store.runs import as_json
from app.domain.evaluation import Evaluation
from app.domain.events import Event, EventKind, Fact, document, read_fact
from app.domain.program import ProgramId
from app.domain.search.archive import Elite, Quality
from app.domain.search.cohort import State
from app.ports.records import Settled

_WRITE = """
    WITH numbered AS (
        UPDATE runs SET events = events + %(n)s WHERE id = %(run)s RETURNING events - %(n)s
            AS before
    )
    INSERT INTO events (run, seq, at, kind, data)
    SELECT %(run)s, before + place, clock_timestamp(), kind, CAST(data AS jsonb)
    FROM numbered, unnest(CAST(%(kinds)s AS text[]), CAST(%(data)s AS text[]))
        WITH ORDINALITY AS event(kind, data, place)
"""
_EVENTS = """
    SELECT seq, kind, data, extract(epoch FROM at - created_at)::float8 AS seconds
    FROM events JOIN runs ON runs.id = events.run
    WHERE events.run = %(run)s AND seq > %(after)s {of_kind} ORDER BY seq LIMIT %(limit)s
"""
_EVERY_EVENT = _EVENTS.format(of_kind="")
_EVENTS_OF_KIND = _EVENTS.format(of_kind="AND kind = ANY(%(kinds)s)")
_SETTLED = """
    SELECT proposals.*, cohorts.operator,
        extract(epoch FROM proposals.settled_at - runs.created_at)::float8 AS seconds,
        spent.wall_seconds, spent.cpu_seconds, spent.peak_memory_mib, spent.boot_seconds,
        asked.tokens, asked.cost_usd
    FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
        JOIN runs ON runs.id = proposals.run
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(wall_seconds), 0) AS wall_seconds,
                coalesce(sum(cpu_seconds), 0) AS cpu_seconds,
                max((evaluation ->> 'peak_memory_mib')::float8) AS peak_memory_mib,
                coalesce(sum((evaluation ->> 'boot_seconds')::float8), 0) AS boot_seconds
            FROM trials
            WHERE trials.cohort = proposals.cohort AND proposals.program = ANY(trials.players)
        ) AS spent
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) AS tokens,
                sum(cost_usd) AS cost_usd
            FROM completions
            WHERE completions.cohort = proposals.cohort AND sample = ordinal AND NOT reused
        ) AS asked
    WHERE proposals.run = %(run)s AND {which}
"""
_HISTORY = (
    _SETTLED.format(which="settled_at IS NOT NULL")
    + "ORDER BY proposals.settled_at, proposals.id LIMIT %(limit)s OFFSET %(after)s"
)
_FITTEST = (
    _SETTLED.format(which="proposals.state = 'admitted'")
    + "ORDER BY proposals.stages_left, proposals.fitness DESC, proposals.ordinal LIMIT 1"
)
_BEST_STANDING = """
    SELECT stages_left, fitness FROM proposals
    WHERE run = %(run)s AND state = 'admitted' AND NOT id = ANY(%(besides)s)
    ORDER BY stages_left, fitness DESC LIMIT 1
"""
_PLACED = (
    _SETTLED.format(which="proposals.state = 'admitted'")
    + "ORDER BY proposals.ordinal LIMIT %(limit)s"
)
_EVALUATED = """
    SELECT cohort, evaluation FROM trials
    WHERE cohort = ANY(%(cohorts)s) AND evaluation IS NOT NULL ORDER BY id
"""
_OF_PROGRAM = """
    SELECT evaluation FROM trials
    WHERE run = %(run)s AND evaluation IS NOT NULL AND %(program)s = ANY(players)
        AND cohort IN (SELECT cohort FROM proposals WHERE run = %(run)s AND program = %(program)s)
    ORDER BY id
"""
_STATES = (
    "SELECT state, count(*) AS n FROM proposals WHERE run = %(run)s AND ordinal >= 0 GROUP BY 1"
)
_FAILURES = """
    SELECT failure_kind, count(*) AS n FROM proposals
    WHERE run = %(run)s AND state = 'failed' AND ordinal >= 0 GROUP BY 1 ORDER BY 2 DESC, 1
"""
_ELITES = "SELECT * FROM elites WHERE run = %(run)s ORDER BY island, number, rank"


def write_events(c: Connection, run: int, batch: Sequence[Fact]) -> None:
    """Numbers and stores a batch under the run's row lock, which the caller's commit ends."""
    write(
        c,
        _WRITE,
        {
            "run": run,
            "n": len(batch),
            "kinds": [fact.kind.value for fact in batch],
            "data": [as_json(document(fact)) for fact in batch],
        },
    )


def events(
    c: Connection, run: int, after: int, limit: int, kinds: Sequence[EventKind]
) -> list[Event]:
    told = {"run": run, "after": after, "limit": limit}
    if kinds:
        found = rows(c, _EVENTS_OF_KIND, {**told, "kinds": [kind.value for kind in kinds]})
    else:
        found = rows(c, _EVERY_EVENT, told)
    return [
        Event(event.seq, event.seconds, read_fact(EventKind(event.kind), event.data))
        for event in found
    ]


def settled(c: Connection, run: int, after: int, limit: int) -> list[Settled]:
    told = {"run": run, "after": after, "limit": limit}
    return [settled_of(one) for one in rows(c, _HISTORY, told)]


def best(c: Connection, run: int) -> Settled | None:
    found = row(c, _FITTEST, {"run": run})
    return settled_of(found) if found else None


def best_quality(c: Connection, run: int, besides: Sequence[int]) -> Quality | None:
    found = row(c, _BEST_STANDING, {"run": run, "besides": list(besides)})
    return Quality(-found.stages_left, found.fitness) if found else None


def placed(c: Connection, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
    found = rows(c, _PLACED, {"run": run, "limit": limit})
    tested: dict[int, list[Evaluation]] = {}
    for one in rows(c, _EVALUATED, {"cohorts": sorted({one.cohort for one in found})}):
        evaluation = evaluation_of(one.evaluation)
        if evaluation is not None:
            tested.setdefault(one.cohort, []).append(evaluation)
    return [
        (settled_of(one), [e for e in tested.get(one.cohort, []) if one.program in e.scores])
        for one in found
    ]


def states(c: Connection, run: int) -> dict[State, int]:
    return {State(one.state): one.n for one in rows(c, _STATES, {"run": run})}


def failures(c: Connection, run: int) -> dict[str, int]:
    return {one.failure_kind: one.n for one in rows(c, _FAILURES, {"run": run})}


def elites(c: Connection, run: int) -> list[tuple[int, Elite]]:
    return [(one.island, elite_of(one)) for one in rows(c, _ELITES, {"run": run})]


def evaluations(c: Connection, run: int, program: ProgramId) -> list[Evaluation]:
    found = rows(c, _OF_PROGRAM, {"run": run, "program": program})
    return [e for one in found if (e := evaluation_of(one.evaluation)) is not None]
