"""Trials, and the leases of whatever is unfinished."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from app.adapters.store.codec import trial_of
from app.adapters.store.driver import rows, values, write
from app.adapters.store.runs import RUN_COLUMNS, as_json, run_of
from app.domain.evaluation import Trial
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, TrialId
from app.ports.ledger import Exhausted
from app.ports.records import LeasedTrial

_ADD = """
    INSERT INTO trials (run, cohort, stage, players, cases, visible_at)
    SELECT run, cohort, stage, players, cases, now() + %(again)s * interval '1 second'
    FROM json_to_recordset(CAST(%(trials)s AS json)) AS told(
        run bigint, cohort bigint, stage text, players text[], cases text[]
    )
    ON CONFLICT ON CONSTRAINT trials_cohort_once DO NOTHING RETURNING id
"""
_CLAIM = f"""
    WITH claimed AS (
        UPDATE trials SET leased_until = now() + %(lease)s * interval '1 second',
            attempts = attempts + 1
        FROM runs
        WHERE trials.id = ANY(%(trials)s) AND trials.evaluation IS NULL AND runs.id = trials.run
            AND runs.state IN ('running', 'paused')
            AND (trials.leased_until IS NULL OR trials.leased_until < now())
        RETURNING trials.run, trials.id, trials.cohort, trials.stage, trials.players, trials.cases,
            trials.attempts
    )
    SELECT mine.claimed,
        (SELECT json_agg(json_build_array(programs.id, programs.source, programs.language))
            FROM programs WHERE programs.id IN (
                SELECT unnest(players) FROM claimed WHERE claimed.run = mine.run
            )) AS programs,
        {RUN_COLUMNS}
    FROM (SELECT run, json_agg(claimed ORDER BY id) AS claimed FROM claimed GROUP BY run) AS mine
    JOIN runs ON runs.id = mine.run
"""
_RENEW = """
    UPDATE {table} SET leased_until = now() + %(lease)s * interval '1 second'
    WHERE id = ANY(%(ids)s) AND leased_until IS NOT NULL
"""
_RELEASE = """
    UPDATE {table} SET leased_until = NULL, visible_at = now() + %(retry)s * interval '1 second',
        attempts = greatest(attempts - 1, 0)
    WHERE id = ANY(%(ids)s)
"""
_OVERDUE = """
    UPDATE {table} SET visible_at = now() + %(again)s * interval '1 second'
    WHERE id IN (
        SELECT id FROM {table} WHERE run = %(run)s AND {waiting} AND visible_at < now()
            AND (leased_until IS NULL OR leased_until < now())
        ORDER BY visible_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) RETURNING id
"""
_FORGET = """
    UPDATE {table} SET attempts = 0, leased_until = NULL, visible_at = now()
    WHERE id IN (
        SELECT id FROM {table} WHERE run = %(run)s AND {waiting} ORDER BY id FOR NO KEY UPDATE
    )
"""
_WAITING = {"cohorts": "NOT bred", "trials": "evaluation IS NULL"}


def add_trials(
    c: Connection, trials: Sequence[tuple[Cohort, Trial]], again: float
) -> list[TrialId]:
    told = [
        {
            "run": cohort.run,
            "cohort": cohort.id,
            "stage": trial.stage,
            "players": list(trial.players),
            "cases": list(trial.cases),
        }
        for cohort, trial in trials
    ]
    return sorted(values(c, _ADD, {"trials": as_json(told), "again": again}))


def claim_trials(
    c: Connection, trials: Sequence[TrialId], lease: float, attempts: int
) -> list[tuple[Run, LeasedTrial]]:
    claimed = []
    for found in rows(c, _CLAIM, {"trials": sorted(trials), "lease": lease}):
        run = run_of(c, found)
        programs = {one: Program(source, language) for one, source, language in found.programs}
        for one in found.claimed:
            if one["attempts"] > attempts:
                raise Exhausted(run.id, one["id"], attempts)
            claimed.append((run, _leased(one, programs)))
    return claimed


def _leased(claimed: Mapping[str, Any], programs: Mapping[ProgramId, Program]) -> LeasedTrial:
    trial = trial_of(claimed)
    players = {player: programs[player] for player in trial.players}
    return LeasedTrial(claimed["id"], claimed["cohort"], trial, players)


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
