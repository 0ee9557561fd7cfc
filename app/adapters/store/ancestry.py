"""Where a program comes from, and what failed on the way: one statement, bounded reads."""

from typing import Any

from sqlalchemy import Connection

from app.adapters.store.codec import evaluation_of
from app.adapters.store.driver import row
from app.domain.evaluation import Evaluation, Failure, FailureKind, merged_metrics
from app.domain.operator import Ancestry, FailedChild, ProgramRecord
from app.domain.program import Program, ProgramId

_ANCESTRY = """
    WITH RECURSIVE line AS (
        SELECT CAST(%(program)s AS text) AS program, 0 AS depth
        UNION ALL
        SELECT born.parent, line.depth + 1
        FROM line CROSS JOIN LATERAL (
            SELECT parents[1] AS parent FROM proposals
            WHERE run + 0 = %(run)s AND program = line.program AND state = 'admitted'
            ORDER BY id DESC LIMIT 1
        ) AS born
        WHERE line.depth < %(ancestors)s AND born.parent <> line.program
    ), ancestor AS (
        SELECT line.depth, programs.id, programs.source, programs.language, one.fitness,
            one.changes, (
                SELECT json_agg(evaluation ORDER BY trials.id) FROM trials
                WHERE trials.cohort = one.cohort AND evaluation IS NOT NULL
            ) AS evaluations
        FROM line JOIN programs ON programs.id = line.program LEFT JOIN LATERAL (
            SELECT fitness, changes, cohort FROM proposals
            WHERE run + 0 = %(run)s AND program = line.program AND state = 'admitted'
            ORDER BY id DESC LIMIT 1
        ) AS one ON true
        WHERE line.depth > 0
    ), failed AS (
        SELECT recent.id, recent.failure_kind, recent.failure_detail, recent.changes,
            programs.source, programs.language, trial.cases, trial.evaluation
        FROM (
            SELECT child.* FROM (SELECT DISTINCT program FROM line) AS line CROSS JOIN LATERAL (
                SELECT id, cohort, program, changes, failure_kind, failure_detail FROM proposals
                WHERE run + 0 = %(run)s AND parents[1] = line.program AND state = 'failed'
                ORDER BY id DESC LIMIT %(failures)s
            ) AS child ORDER BY child.id DESC LIMIT %(failures)s
        ) AS recent LEFT JOIN programs ON programs.id = recent.program LEFT JOIN LATERAL (
            SELECT cases, evaluation FROM trials
            WHERE trials.cohort = recent.cohort AND recent.program = ANY(trials.players)
                AND evaluation ? 'failure'
            ORDER BY trials.id LIMIT 1
        ) AS trial ON true
    )
    SELECT (SELECT json_agg(ancestor ORDER BY depth) FROM ancestor) AS ancestors,
        (SELECT json_agg(failed ORDER BY id DESC) FROM failed) AS failures
"""
"""`run + 0`: a plan made while the tables were empty must not take an index by run alone."""


def ancestry(
    c: Connection, run: int, program: ProgramId, ancestors: int, failures: int
) -> Ancestry:
    told = {"run": run, "program": program, "ancestors": ancestors, "failures": failures}
    found = row(c, _ANCESTRY, told)
    return Ancestry(
        tuple(_known(one) for one in found.ancestors or ()),
        tuple(_failed(one) for one in found.failures or ()),
    )


def _known(one: Any) -> ProgramRecord:
    tested: list[Evaluation] = [
        e for stored in one["evaluations"] or () if (e := evaluation_of(stored))
    ]
    return ProgramRecord(
        Program(one["source"], one["language"]),
        one["fitness"],
        merged_metrics(one["id"], tested),
        changes=one["changes"] or "",
    )


def _failed(one: Any) -> FailedChild:
    evaluation = evaluation_of(one["evaluation"])
    program = Program(one["source"], one["language"]) if one["source"] is not None else None
    return FailedChild(
        Failure(FailureKind(one["failure_kind"]), one["failure_detail"] or ""),
        program,
        one["changes"],
        tuple(case for case in one["cases"] or () if case),
        evaluation.artifacts if evaluation else {},
    )
