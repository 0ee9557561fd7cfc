"""Trials and their evaluations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.adapters.store.codec import as_json, evaluation_json, evaluation_of, program_of, trial_of
from app.adapters.store.cohorts import CONTENTS, LOCK, cohort_of, tested
from app.adapters.store.driver import DriverConnection, Json, Record
from app.adapters.store.programs import PROGRAM
from app.adapters.store.runs import RUN_COLUMNS, run_of
from app.domain.evaluation import Evaluation, Trial, fitness
from app.domain.program import Program, ProgramId
from app.domain.prompting.judging import STAGE
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, TrialId
from app.domain.search.fleets import FleetRules
from app.domain.search.shares import Claimant
from app.ports.leases import Exhausted
from app.ports.trials import LeasedTrial, TrialQueue, TrialResult, WaitingTrial
from app.ports.workers import LIVE_SECONDS

_ADD = """
    INSERT INTO trials (run, cohort, island, stage, players, cases, fleet, visible_at)
    SELECT run, cohort, island, stage, players, cases, fleet,
        now() + %(again)s * interval '1 second'
    FROM json_populate_recordset(NULL::trials, CAST(%(trials)s AS json))
    ON CONFLICT ON CONSTRAINT trials_cohort_once DO NOTHING RETURNING id, cohort, stage, fleet
"""
_QUEUES = """
    WITH held AS (
        SELECT DISTINCT runs.id FROM trials JOIN runs ON runs.id = trials.run
        WHERE trials.id = ANY(%(named)s) AND runs.in_process
    ), places AS (
        SELECT queue, sum(sandbox_places)::int AS places
        FROM workers CROSS JOIN unnest(queues) AS queue
        WHERE seen_at > now() - %(live)s * interval '1 second' GROUP BY queue
    )
    SELECT runs.id AS run, runs.weight, runs.trials_at_once, runs.batch, runs.project,
        runs.priority, trials.fleet,
        coalesce((SELECT weight FROM projects WHERE name = runs.project), 1) AS project_weight,
        ceil(count(*) FILTER (WHERE NOT waits)::float8 / runs.batch)::int AS at_work,
        (array_agg(trials.id ORDER BY trials.id) FILTER (WHERE waits))[1:%(most)s] AS waiting,
        array_agg(trials.id ORDER BY trials.id)
            FILTER (WHERE waits AND trials.id = ANY(%(named)s)) AS named,
        (SELECT places FROM places
            WHERE queue = concat_ws(':', 'cpu', nullif(trials.fleet, ''))) AS places
    FROM (
        SELECT id, state, weight, trials_at_once, project, priority,
            CASE WHEN trials_at_once IS NULL THEN evaluate_batch ELSE 1 END AS batch
        FROM runs WHERE state IN ('running', 'paused') AND CASE
            WHEN EXISTS (SELECT FROM held) THEN id IN (SELECT id FROM held) ELSE NOT in_process END
    ) AS runs JOIN LATERAL (
        SELECT id, fleet, leased_until IS NULL OR leased_until < now() AS waits FROM trials
        WHERE trials.run = runs.id AND evaluation IS NULL AND NOT withdrawn
            AND stage <> %(judged)s
            AND (runs.state = 'running' OR leased_until > now())
    ) AS trials ON true
    GROUP BY runs.id, runs.weight, runs.trials_at_once, runs.batch, runs.project, runs.priority,
        trials.fleet
    ORDER BY runs.id, trials.fleet
"""
"""A batch is in one sandbox, so it takes one place.  Where a run limits its places, each trial
counts as one: batches that are not full would be more than they seem.  A run that one process alone
works on takes no place of another run, and another run none of its process."""
_LOCK_LIMIT = "SELECT pg_advisory_xact_lock(%(space)s, %(run)s)"
_LIMITS = 0x65766F72
"""First key of the advisory lock on a run's limit of trials at work; the second is its id."""
OFFERED = 64
"""Waiting trials that are read of each run."""
_CLAIM = f"""
    WITH claimed AS (
        UPDATE trials SET leased_until = now() + %(lease)s * interval '1 second',
            attempts = attempts + 1
        FROM runs
        WHERE trials.id = ANY(%(trials)s) AND trials.id IN (
            SELECT id FROM trials WHERE id = ANY(%(trials)s) ORDER BY id FOR NO KEY UPDATE
        ) AND trials.evaluation IS NULL AND NOT trials.withdrawn AND runs.id = trials.run
            AND runs.state = 'running'
            AND (trials.leased_until IS NULL OR trials.leased_until < now())
        RETURNING trials.run, trials.id, trials.cohort, trials.stage, trials.players, trials.cases,
            trials.attempts, trials.fleet
    )
    SELECT mine.claimed,
        (SELECT json_agg(player) FROM (
            SELECT programs.id, {PROGRAM} FROM programs WHERE programs.id IN (
                SELECT unnest(players) FROM claimed WHERE claimed.run = mine.run
            )
        ) AS player) AS programs,
        {RUN_COLUMNS}
    FROM (SELECT run, json_agg(claimed ORDER BY id) AS claimed FROM claimed GROUP BY run) AS mine
    JOIN runs ON runs.id = mine.run
"""

_RECORD = f"""
    WITH recorded AS (
        UPDATE trials SET evaluation = given.evaluation, score = given.score,
            wall_seconds = given.wall_seconds, cpu_seconds = given.cpu_seconds,
            leased_until = NULL
        FROM json_populate_recordset(NULL::trials, CAST(%(measured)s AS json)) AS given
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

_OF_OPERATOR = """
    SELECT trials.id, trials.stage, trials.players, trials.cases
    FROM trials JOIN cohorts ON cohorts.id = trials.cohort
    WHERE cohorts.run = %(run)s AND cohorts.operator = %(operator)s AND NOT trials.withdrawn
"""
_UNFINISHED = """
    SELECT EXISTS (SELECT FROM trials WHERE run = %(run)s AND evaluation IS NULL AND NOT withdrawn)
"""
_RESULTS = "SELECT id, evaluation FROM trials WHERE id = ANY(%(trials)s) AND evaluation IS NOT NULL"


def _leased(claimed: Json, programs: Mapping[ProgramId, Program]) -> LeasedTrial:
    trial = trial_of(claimed)
    players = {player: programs[player] for player in trial.players}
    return LeasedTrial(claimed["id"], claimed["cohort"], trial, players, claimed["attempts"])


def _queues(found: Sequence[Record]) -> list[TrialQueue]:
    at_work = Counter[int]()
    for record in found:
        at_work[record.run] += record.at_work
    return [_queue(record, at_work[record.run] - record.at_work) for record in found]


def _queue(record: Record, elsewhere: int) -> TrialQueue:
    """Returns the trials of a run at one fleet.

    Args:
      record: Of the run and the fleet.
      elsewhere: Trials of the run that are at work at other fleets.
    """
    limit = record.trials_at_once
    claimant = Claimant(
        record.run,
        record.weight,
        record.at_work,
        bool(record.waiting),
        None if limit is None else limit - elsewhere,
        record.project,
        record.project_weight,
        record.priority,
    )
    offered, named = tuple(record.waiting or ()), tuple(record.named or ())
    return TrialQueue(claimant, record.batch, offered, named, record.places, record.fleet)


def waiting(result: Sequence[Record]) -> list[WaitingTrial]:
    """Returns trials of rows with `id`, `cohort`, `stage` and `fleet`, in order of id."""
    trials = (WaitingTrial(row.id, row.cohort, row.stage, row.fleet) for row in result)
    return sorted(trials, key=lambda trial: trial.id)


class SqlTrials:
    """See `app.ports.trials.Trials`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def add(
        self,
        trials: Sequence[tuple[Cohort, Trial]],
        *,
        redeliver_seconds: float,
        fleets: FleetRules,
    ) -> list[WaitingTrial]:
        values = [
            {
                "run": cohort.run,
                "cohort": cohort.id,
                "island": cohort.island,
                "stage": trial.stage,
                "players": list(trial.players),
                "cases": list(trial.cases),
                "fleet": fleets.judging if trial.stage == STAGE else fleets.trial(cohort.island),
            }
            for cohort, trial in trials
        ]
        added = self._c.rows(_ADD, {"trials": as_json(values), "again": redeliver_seconds})
        return waiting(added)

    def queues(self, named: Sequence[TrialId]) -> list[TrialQueue]:
        params = {"named": list(named), "judged": STAGE, "most": OFFERED, "live": LIVE_SECONDS}
        found = self._c.rows(_QUEUES, params)
        limited = [record.run for record in found if record.trials_at_once and record.waiting]
        for run in limited:
            self._c.write(_LOCK_LIMIT, {"space": _LIMITS, "run": run % 2**31})
        # Only a second reading sees the trials that were leased before the lock was granted.
        if limited:
            found = self._c.rows(_QUEUES, params)
        return _queues(found)

    def claim(
        self, trials: Sequence[TrialId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, LeasedTrial]]:
        claimed = []
        for result in self._c.rows(_CLAIM, {"trials": sorted(trials), "lease": lease_seconds}):
            run = run_of(self._c, result)
            programs = {
                player["id"]: program_of(player["source"], player["language"], player["files"])
                for player in result.programs
            }
            for record in result.claimed:
                if record["attempts"] > attempts and len(record["players"]) == 1:
                    raise Exhausted(run.id, record["id"], attempts)
                of_fleet = replace(run, fleet=record["fleet"]) if record["fleet"] else run
                claimed.append((of_fleet, _leased(record, programs)))
        return claimed

    def record(self, results: Sequence[TrialResult]) -> tuple[Run, list[Cohort]] | None:
        result = self._c.row(LOCK, {"cohorts": sorted({result.cohort for result in results})})
        run = run_of(self._c, result)
        if run.state.final:
            return None
        evaluations = {result.id: result.evaluation for result in results}
        values = [
            {
                "id": trial,
                "evaluation": evaluation_json(evaluation),
                "score": _score(evaluation),
                "wall_seconds": evaluation.wall_seconds,
                "cpu_seconds": evaluation.cpu_seconds,
            }
            for trial, evaluation in evaluations.items()
        ]
        recorded = self._c.rows(_RECORD, {"trials": list(evaluations), "measured": as_json(values)})
        locked = {record["id"]: record for record in result.locked}
        return (
            (run, [_with(record, locked, evaluations) for record in recorded]) if recorded else None
        )

    def of_operator(self, run: int, operator: str) -> dict[Trial, TrialId]:
        found = self._c.rows(_OF_OPERATOR, {"run": run, "operator": operator})
        return {
            Trial(record.stage, tuple(record.players), tuple(record.cases)): record.id
            for record in found
        }

    def unfinished(self, run: int) -> bool:
        return bool(self._c.value(_UNFINISHED, {"run": run}))

    def results(self, trials: Sequence[TrialId]) -> dict[TrialId, Evaluation]:
        found = self._c.rows(_RESULTS, {"trials": list(trials)})
        return {
            record.id: evaluation
            for record in found
            if (evaluation := evaluation_of(record.evaluation)) is not None
        }


def _score(evaluation: Evaluation) -> float | None:
    """Returns the fitness of the first player by this evaluation alone; None after a failure."""
    player = next(iter(evaluation.scores), None)
    return None if player is None else fitness(player, [evaluation])


def _with(
    held: Record, locked: Mapping[CohortId, Json], evaluations: Mapping[TrialId, Evaluation]
) -> Cohort:
    """Returns a cohort with what was just recorded in the place of what was not known before."""
    new = [(trial_of(record), evaluations[record["id"]]) for record in held.recorded]
    cohort = cohort_of(locked[held.id], held.members, [*tested(held), *new])
    return replace(cohort, recorded=tuple(trial for trial, _ in new))
