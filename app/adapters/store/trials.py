"""Trials, and the leases of whatever is unfinished."""

from collections.abc import Sequence

from sqlalchemy import Connection

from app.adapters.store.codec import run_of
from app.adapters.store.driver import row, value, values, write
from app.adapters.store.runs import RUN_COLUMNS
from app.domain.cohort import Cohort, CohortId, TrialId
from app.domain.evaluation import Trial
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.ledger import Exhausted

_ADD = """
    INSERT INTO trials (run, cohort, stage, players, cases, ring_at)
    VALUES (%(run)s, %(cohort)s, %(stage)s, %(players)s, %(cases)s, now() + %(again)s
        * interval '1 second')
    ON CONFLICT ON CONSTRAINT trials_cohort_once DO NOTHING RETURNING id
"""
_CLAIM = f"""
    UPDATE trials SET leased_until = now() + %(lease)s * interval '1 second',
        attempts = attempts + 1
    FROM runs JOIN problems ON problems.digest = runs.problem
    WHERE trials.id = %(trial)s AND trials.evaluation IS NULL AND runs.id = trials.run
        AND runs.state IN ('running', 'paused')
        AND (trials.leased_until IS NULL OR trials.leased_until < now())
    RETURNING trials.cohort, trials.stage, trials.players, trials.cases, trials.attempts,
        (SELECT json_agg(json_build_array(programs.id, programs.source, programs.language))
            FROM programs WHERE programs.id = ANY(trials.players)) AS programs,
        {RUN_COLUMNS}
"""
_RENEW = """
    UPDATE {table} SET leased_until = now() + %(lease)s * interval '1 second'
    WHERE id = ANY(%(ids)s) AND leased_until IS NOT NULL
"""
_RELEASE = """
    UPDATE {table} SET leased_until = NULL, ring_at = now() + %(retry)s * interval '1 second',
        attempts = greatest(attempts - 1, 0)
    WHERE id = ANY(%(ids)s)
"""
_OVERDUE = """
    UPDATE {table} SET ring_at = now() + %(again)s * interval '1 second'
    WHERE id IN (
        SELECT id FROM {table} WHERE run = %(run)s AND {waiting} AND ring_at < now()
            AND (leased_until IS NULL OR leased_until < now())
        ORDER BY ring_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) RETURNING id
"""
_FORGET = """
    UPDATE {table} SET attempts = 0, leased_until = NULL, ring_at = now()
    WHERE run = %(run)s AND {waiting}
"""
_WAITING = {"cohorts": "NOT bred", "trials": "evaluation IS NULL"}


def add_trials(
    c: Connection, cohort: Cohort, trials: Sequence[Trial], again: float
) -> list[TrialId]:
    ids = []
    for trial in trials:
        added = value(
            c,
            _ADD,
            {
                "run": cohort.run,
                "cohort": cohort.id,
                "stage": trial.stage,
                "players": list(trial.players),
                "cases": list(trial.cases),
                "again": again,
            },
        )
        if added is not None:
            ids.append(int(added))
    return ids


def claim_trial(
    c: Connection, trial: TrialId, lease: float, attempts: int
) -> tuple[Run, CohortId, Trial, dict[ProgramId, Program]] | None:
    claimed = row(c, _CLAIM, {"trial": trial, "lease": lease})
    if claimed is None:
        return None
    if claimed.attempts > attempts:
        raise Exhausted(claimed.id, attempts)
    players = {one: Program(source, language) for one, source, language in claimed.programs}
    made = Trial(claimed.stage, tuple(claimed.players), tuple(claimed.cases))
    return run_of(claimed), claimed.cohort, made, players


def renew(
    c: Connection, cohorts: Sequence[CohortId], trials: Sequence[TrialId], lease: float
) -> None:
    for table, ids in (("cohorts", cohorts), ("trials", trials)):
        if ids:
            write(c, _RENEW.format(table=table), {"ids": sorted(ids), "lease": lease})


def release(
    c: Connection, cohorts: Sequence[CohortId], trials: Sequence[TrialId], retry: float
) -> None:
    for table, ids in (("cohorts", cohorts), ("trials", trials)):
        if ids:
            write(c, _RELEASE.format(table=table), {"ids": sorted(ids), "retry": retry})


def overdue(
    c: Connection, run: int, again: float, limit: int
) -> tuple[list[CohortId], list[TrialId]]:
    found = []
    for table, waiting in _WAITING.items():
        query = _OVERDUE.format(table=table, waiting=waiting)
        told = {"run": run, "again": again, "limit": limit}
        found.append(sorted(values(c, query, told)))
    return found[0], found[1]


def forget_attempts(c: Connection, run: int) -> None:
    for table, waiting in _WAITING.items():
        write(c, _FORGET.format(table=table, waiting=waiting), {"run": run})
