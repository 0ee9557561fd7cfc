"""Trials and their evaluations."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from app.adapters.store.codec import evaluation_json, trial_of
from app.adapters.store.cohorts import CONTENTS, LOCK, cohort_of, tested
from app.adapters.store.driver import row, rows
from app.adapters.store.runs import RUN_COLUMNS, as_json, run_of
from app.domain.evaluation import Evaluation, Trial
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, TrialId
from app.ports.ledger import Exhausted
from app.ports.records import LeasedTrial, TrialResult, WaitingTrial

_ADD = """
    INSERT INTO trials (run, cohort, stage, players, cases, visible_at)
    SELECT run, cohort, stage, players, cases, now() + %(again)s * interval '1 second'
    FROM json_to_recordset(CAST(%(trials)s AS json)) AS given(
        run bigint, cohort bigint, stage text, players text[], cases text[]
    )
    ON CONFLICT ON CONSTRAINT trials_cohort_once DO NOTHING RETURNING id, cohort, stage
"""
_CLAIM = f"""
    WITH claimed AS (
        UPDATE trials SET leased_until = now() + %(lease)s * interval '1 second',
            attempts = attempts + 1
        FROM runs
        WHERE trials.id = ANY(%(trials)s) AND trials.id IN (
            SELECT id FROM trials WHERE id = ANY(%(trials)s) ORDER BY id FOR NO KEY UPDATE
        ) AND trials.evaluation IS NULL AND runs.id = trials.run
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

_RECORD = f"""
    WITH recorded AS (
        UPDATE trials SET evaluation = given.evaluation, wall_seconds = given.wall,
            cpu_seconds = given.cpu, leased_until = NULL
        FROM json_to_recordset(CAST(%(measured)s AS json)) AS given(
            id bigint, evaluation jsonb, wall float8, cpu float8
        )
        WHERE trials.id = ANY(%(trials)s) AND trials.id IN (
            SELECT id FROM trials WHERE id = ANY(%(trials)s) ORDER BY id FOR NO KEY UPDATE
        ) AND trials.id = given.id AND trials.evaluation IS NULL
        RETURNING trials.id, trials.cohort, trials.stage, trials.players, trials.cases
    )
    {CONTENTS}, cohorts.recorded FROM (
        SELECT cohort AS id, json_agg(recorded ORDER BY id) AS recorded
        FROM recorded GROUP BY cohort
    ) AS cohorts
    ORDER BY cohorts.id
"""
"""A row for each cohort with a new evaluation; its `trials` are those of before."""


def _leased(claimed: Mapping[str, Any], programs: Mapping[ProgramId, Program]) -> LeasedTrial:
    trial = trial_of(claimed)
    players = {player: programs[player] for player in trial.players}
    return LeasedTrial(claimed["id"], claimed["cohort"], trial, players)


def waiting(result: Sequence[Any]) -> list[WaitingTrial]:
    """Returns trials of rows with `id`, `cohort` and `stage`, in order of id."""
    trials = (WaitingTrial(row.id, row.cohort, row.stage) for row in result)
    return sorted(trials, key=lambda trial: trial.id)


class SqlTrials:
    """See `app.ports.ledger.Trials`."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def add(
        self, trials: Sequence[tuple[Cohort, Trial]], *, redeliver_seconds: float
    ) -> list[WaitingTrial]:
        values = [
            {
                "run": cohort.run,
                "cohort": cohort.id,
                "stage": trial.stage,
                "players": list(trial.players),
                "cases": list(trial.cases),
            }
            for cohort, trial in trials
        ]
        added = rows(self._c, _ADD, {"trials": as_json(values), "again": redeliver_seconds})
        return waiting(added)

    def claim(
        self, trials: Sequence[TrialId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, LeasedTrial]]:
        claimed = []
        for result in rows(self._c, _CLAIM, {"trials": sorted(trials), "lease": lease_seconds}):
            run = run_of(self._c, result)
            programs = {
                program: Program(source, language) for program, source, language in result.programs
            }
            for record in result.claimed:
                if record["attempts"] > attempts:
                    raise Exhausted(run.id, record["id"], attempts)
                claimed.append((run, _leased(record, programs)))
        return claimed

    def record(self, results: Sequence[TrialResult]) -> tuple[Run, list[Cohort]] | None:
        result = row(self._c, LOCK, {"cohorts": sorted({result.cohort for result in results})})
        run = run_of(self._c, result)
        if run.state.final:
            return None
        evaluations = {result.id: result.evaluation for result in results}
        values = [
            {
                "id": trial,
                "evaluation": evaluation_json(evaluation),
                "wall": evaluation.wall_seconds,
                "cpu": evaluation.cpu_seconds,
            }
            for trial, evaluation in evaluations.items()
        ]
        recorded = rows(
            self._c, _RECORD, {"trials": list(evaluations), "measured": as_json(values)}
        )
        locked = {record["id"]: record for record in result.locked}
        return (
            (run, [_with(record, locked, evaluations) for record in recorded]) if recorded else None
        )


def _with(
    held: Any, locked: Mapping[CohortId, Any], evaluations: Mapping[TrialId, Evaluation]
) -> Cohort:
    """Returns a cohort with what was just recorded in the place of what was not known before."""
    new = [(trial_of(record), evaluations[record["id"]]) for record in held.recorded]
    return cohort_of(locked[held.id], held.members, [*tested(held), *new])
