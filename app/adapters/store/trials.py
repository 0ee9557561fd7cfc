"""Trials, and the leases of whatever is unfinished."""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB

from app.adapters.store.codec import evaluation_json, run_of, trial_of
from app.adapters.store.runs import RUN_COLUMNS
from app.domain.cohort import Cohort, CohortId, TrialId
from app.domain.evaluation import Evaluation, Trial
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.ledger import Exhausted

_ADD = text("""
    INSERT INTO trials (run, cohort, stage, players, cases, ring_at)
    VALUES (:run, :cohort, :stage, :players, :cases, now() + :again * interval '1 second')
    ON CONFLICT ON CONSTRAINT trials_cohort_once DO NOTHING RETURNING id
""")
_CLAIM = text(f"""
    UPDATE trials SET leased_until = now() + :lease * interval '1 second',
        ring_at = now() + :lease * interval '1 second', attempts = attempts + 1
    FROM runs JOIN problems ON problems.digest = runs.problem
    WHERE trials.id = :trial AND trials.evaluation IS NULL AND runs.id = trials.run
        AND runs.state IN ('running', 'paused')
        AND (trials.leased_until IS NULL OR trials.leased_until < now())
    RETURNING trials.cohort, trials.stage, trials.players, trials.cases, trials.attempts,
        (SELECT json_agg(json_build_array(programs.id, programs.source, programs.language))
            FROM programs WHERE programs.id = ANY(trials.players)) AS programs,
        {RUN_COLUMNS}
""")
_RECORD = text("""
    UPDATE trials SET evaluation = :evaluation, wall_seconds = :wall, cpu_seconds = :cpu,
        leased_until = NULL
    WHERE id = :trial AND evaluation IS NULL
""").bindparams(bindparam("evaluation", type_=JSONB))
_RENEW = """
    UPDATE {table} SET leased_until = now() + :lease * interval '1 second',
        ring_at = now() + :lease * interval '1 second'
    WHERE id = ANY(:ids) AND leased_until IS NOT NULL
"""
_RELEASE = """
    UPDATE {table} SET leased_until = NULL, ring_at = now() + :retry * interval '1 second',
        attempts = greatest(attempts - 1, 0)
    WHERE id = ANY(:ids)
"""
_OVERDUE = """
    UPDATE {table} SET ring_at = now() + :again * interval '1 second'
    WHERE id IN (
        SELECT id FROM {table} WHERE run = :run AND {waiting} AND ring_at < now()
        ORDER BY ring_at LIMIT :limit FOR UPDATE SKIP LOCKED
    ) RETURNING id
"""
_FORGET = """
    UPDATE {table} SET attempts = 0, leased_until = NULL, ring_at = now()
    WHERE run = :run AND {waiting}
"""
_WAITING = {"cohorts": "NOT bred", "trials": "evaluation IS NULL"}


def add_trials(
    c: Connection, cohort: Cohort, trials: Sequence[Trial], again: float
) -> list[TrialId]:
    ids = []
    for trial in trials:
        added = c.execute(
            _ADD,
            {
                "run": cohort.run,
                "cohort": cohort.id,
                "stage": trial.stage,
                "players": list(trial.players),
                "cases": list(trial.cases),
                "again": again,
            },
        ).scalar()
        if added is not None:
            ids.append(int(added))
    return ids


def claim_trial(
    c: Connection, trial: TrialId, lease: float, attempts: int
) -> tuple[Run, CohortId, Trial, dict[ProgramId, Program]] | None:
    row = c.execute(_CLAIM, {"trial": trial, "lease": lease}).mappings().first()
    if row is None:
        return None
    if row["attempts"] > attempts:
        raise Exhausted(row["id"], attempts)
    players = {one: Program(source, language) for one, source, language in row["programs"]}
    return run_of(row), row["cohort"], trial_of(dict(row)), players


def record(c: Connection, trial: TrialId, evaluation: Evaluation) -> bool:
    done = c.execute(
        _RECORD,
        {
            "trial": trial,
            "evaluation": evaluation_json(evaluation),
            "wall": evaluation.wall_seconds,
            "cpu": evaluation.cpu_seconds,
        },
    )
    return done.rowcount == 1


def renew(
    c: Connection, cohorts: Sequence[CohortId], trials: Sequence[TrialId], lease: float
) -> None:
    for table, ids in (("cohorts", cohorts), ("trials", trials)):
        if ids:
            c.execute(text(_RENEW.format(table=table)), {"ids": sorted(ids), "lease": lease})


def release(
    c: Connection, cohorts: Sequence[CohortId], trials: Sequence[TrialId], retry: float
) -> None:
    for table, ids in (("cohorts", cohorts), ("trials", trials)):
        if ids:
            c.execute(text(_RELEASE.format(table=table)), {"ids": sorted(ids), "retry": retry})


def overdue(
    c: Connection, run: int, again: float, limit: int
) -> tuple[list[CohortId], list[TrialId]]:
    found = []
    for table, waiting in _WAITING.items():
        query = text(_OVERDUE.format(table=table, waiting=waiting))
        told = {"run": run, "again": again, "limit": limit}
        found.append(sorted(c.execute(query, told).scalars()))
    return found[0], found[1]


def forget_attempts(c: Connection, run: int) -> None:
    for table, waiting in _WAITING.items():
        c.execute(text(_FORGET.format(table=table, waiting=waiting)), {"run": run})
