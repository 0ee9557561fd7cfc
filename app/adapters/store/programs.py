"""Programs and what a run knows of them."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from app.adapters.store import tables as t
from app.adapters.store.codec import evaluation_of
from app.adapters.store.driver import rows, values, write
from app.domain.evaluation import merged_metrics
from app.domain.operator import ProgramRecord
from app.domain.program import Program, ProgramId

_PUT = (
    "INSERT INTO programs (id, source, language, length)"
    " SELECT * FROM unnest(CAST(%(ids)s AS text[]), CAST(%(sources)s AS text[]),"
    " CAST(%(languages)s AS text[]), CAST(%(lengths)s AS int[])) ON CONFLICT DO NOTHING"
)
_CLAIM = """
    INSERT INTO fingerprints (run, island, fingerprint)
    SELECT %(run)s, claimed.* FROM unnest(
        CAST(%(islands)s AS int[]), CAST(%(fingerprints)s AS text[])
    ) AS claimed
    ON CONFLICT DO NOTHING RETURNING island, fingerprint
"""
"""Told in order: who waits for another's claim holds none that the other will want."""
_KNOWN = """
    SELECT programs.id, programs.source, programs.language, one.fitness, one.changes,
        CASE WHEN %(measured)s THEN (
            SELECT json_agg(evaluation ORDER BY trials.id) FROM trials
            WHERE trials.cohort = one.cohort AND evaluation IS NOT NULL
        ) END AS evaluations
    FROM programs LEFT JOIN LATERAL (
        SELECT fitness, changes, cohort FROM proposals
        WHERE run + 0 = %(run)s AND program = programs.id AND state = 'admitted'
        ORDER BY id DESC LIMIT 1
    ) AS one ON true
    WHERE programs.id = ANY(%(ids)s)
"""
"""`run + 0`: a plan made while the tables were small takes any index that begins with `run`."""
_CHILDREN = """
    SELECT programs.source, programs.language, proposals.fitness, proposals.changes
    FROM proposals JOIN programs ON programs.id = proposals.program
    WHERE proposals.run + 0 = %(run)s AND proposals.parents[1] = %(parent)s
        AND proposals.state = 'admitted'
    ORDER BY proposals.id DESC LIMIT %(limit)s
"""


_NAMED = """
    SELECT DISTINCT program FROM proposals
    WHERE run = %(run)s AND program LIKE %(beginning)s ORDER BY program LIMIT 2
"""


def put_programs(c: Connection, programs: Sequence[Program]) -> None:
    if not programs:
        return
    ordered = sorted({program.id: program for program in programs}.items())
    write(
        c,
        _PUT,
        {
            "ids": [one for one, _ in ordered],
            "sources": [program.source for _, program in ordered],
            "languages": [program.language for _, program in ordered],
            "lengths": [len(program.source) for _, program in ordered],
        },
    )


def programs(c: Connection, ids: Sequence[ProgramId]) -> dict[ProgramId, Program]:
    rows = c.execute(
        select(t.programs.c.id, t.programs.c.source, t.programs.c.language).where(
            t.programs.c.id.in_(ids)
        )
    )
    return {row.id: Program(row.source, row.language) for row in rows}


def programs_named(c: Connection, run: int, beginning: str) -> list[ProgramId]:
    return values(c, _NAMED, {"run": run, "beginning": f"{beginning}%"})


def lengths(c: Connection, ids: Sequence[ProgramId]) -> dict[ProgramId, int]:
    rows = c.execute(select(t.programs.c.id, t.programs.c.length).where(t.programs.c.id.in_(ids)))
    return {row.id: row.length for row in rows}


def known(
    c: Connection, run: int, ids: Sequence[ProgramId], *, measured: bool
) -> dict[ProgramId, ProgramRecord]:
    found = {}
    for one in rows(c, _KNOWN, {"run": run, "ids": list(ids), "measured": measured}):
        tested = [e for stored in one.evaluations or () if (e := evaluation_of(stored))]
        own = [e for e in tested if one.id in e.scores or one.id in e.metrics]
        found[one.id] = ProgramRecord(
            program=Program(one.source, one.language),
            fitness=one.fitness,
            metrics=merged_metrics(one.id, own),
            features={k: v for e in own for k, v in e.features.get(one.id, {}).items()},
            artifacts={k: v for e in own for k, v in e.artifacts.items()},
            changes=one.changes or "",
        )
    return found


def children(c: Connection, run: int, parent: ProgramId, limit: int) -> tuple[ProgramRecord, ...]:
    found = rows(c, _CHILDREN, {"run": run, "parent": parent, "limit": limit})
    return tuple(
        ProgramRecord(Program(row.source, row.language), row.fitness, changes=row.changes)
        for row in found
    )


def claim_fingerprints(
    c: Connection, run: int, claims: Sequence[tuple[int, str]]
) -> set[tuple[int, str]]:
    if not claims:
        return set()
    ordered = sorted(set(claims))
    told = {
        "run": run,
        "islands": [island for island, _ in ordered],
        "fingerprints": [fingerprint for _, fingerprint in ordered],
    }
    return {(one.island, one.fingerprint) for one in rows(c, _CLAIM, told)}
