"""Cohorts and their proposals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from app.adapters.store.codec import (
    clean,
    evaluation_json,
    evaluation_of,
    member_of,
    trial_of,
)
from app.adapters.store.driver import row, rows, write
from app.adapters.store.runs import RUN_COLUMNS, as_json, run_of
from app.domain.evaluation import Evaluation, Trial
from app.domain.operator import Draft, Role
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, TrialId
from app.ports.ledger import Exhausted
from app.ports.records import MemberResult, TrialResult, Turn

_MEMBERS = """
    (SELECT json_agg(member ORDER BY member.id) FROM (
        SELECT proposals.id, ordinal, island, state, epoch, generation, parents, inspirations,
            role, program, programs.length
        FROM proposals LEFT JOIN programs ON programs.id = proposals.program
        WHERE proposals.cohort = {cohort}
    ) AS member)
"""
_CLAIM = f"""
    WITH claimed AS (
        UPDATE cohorts SET leased_until = now() + %(lease)s * interval '1 second',
            attempts = attempts + 1
        FROM runs
        WHERE cohorts.id = ANY(%(cohorts)s) AND NOT cohorts.bred AND runs.id = cohorts.run
            AND runs.state IN ('running', 'paused')
            AND (cohorts.leased_until IS NULL OR cohorts.leased_until < now())
        RETURNING cohorts.run, cohorts.id, cohorts.island, cohorts.operator, cohorts.founding,
            cohorts.attempts, {_MEMBERS.format(cohort="cohorts.id")} AS members
    )
    SELECT mine.claimed, {RUN_COLUMNS}
    FROM (SELECT run, json_agg(claimed ORDER BY id) AS claimed FROM claimed GROUP BY run) AS mine
    JOIN runs ON runs.id = mine.run
"""
_LOCK = f"""
    WITH locked AS (
        SELECT id, run, island, operator, founding, bred FROM cohorts
        WHERE id = ANY(%(cohorts)s) ORDER BY id FOR NO KEY UPDATE
    )
    SELECT (SELECT json_agg(locked ORDER BY id) FROM locked) AS locked, {RUN_COLUMNS}
    FROM runs WHERE runs.id = (SELECT min(run) FROM locked)
"""
"""Not `FOR UPDATE`: who saves a completion holds its run, and refers to a cohort after that."""
_CONTENTS = f"""
    SELECT cohorts.id, {_MEMBERS.format(cohort="cohorts.id")} AS members,
        (SELECT json_agg(trial ORDER BY trial.id) FROM (
            SELECT id, stage, players, cases, evaluation FROM trials
            WHERE trials.cohort = cohorts.id
        ) AS trial) AS trials
"""
"""Read after the lock: a statement that waits for a lock has a snapshot from before the wait."""
_CONTENTS_OF_ONE = f"{_CONTENTS} FROM cohorts WHERE id = %(cohort)s"
_RECORD = f"""
    WITH recorded AS (
        UPDATE trials SET evaluation = told.evaluation, wall_seconds = told.wall,
            cpu_seconds = told.cpu, leased_until = NULL
        FROM json_to_recordset(CAST(%(measured)s AS json)) AS told(
            id bigint, evaluation jsonb, wall float8, cpu float8
        )
        WHERE trials.id = ANY(%(trials)s) AND trials.id = told.id AND trials.evaluation IS NULL
        RETURNING trials.id, trials.cohort, trials.stage, trials.players, trials.cases
    )
    {_CONTENTS}, cohorts.recorded FROM (
        SELECT cohort AS id, json_agg(recorded ORDER BY id) AS recorded
        FROM recorded GROUP BY cohort
    ) AS cohorts
    ORDER BY cohorts.id
"""
"""A row for each cohort with a new evaluation; its `trials` are those of before."""
_ENTER = """
    WITH done AS (
        UPDATE cohorts SET bred = true, leased_until = NULL WHERE id = ANY(%(cohorts)s) AND NOT bred
    )
    UPDATE proposals SET state = child.state,
        program = coalesce(child.program, proposals.program),
        changes = coalesce(child.changes, proposals.changes),
        fitness = child.fitness, verified = child.verified, stages_left = child.stages_left,
        failure_kind = child.failure_kind, failure_detail = child.failure_detail,
        epoch = child.epoch, generation = child.generation, role = child.role,
        parents = child.parents, inspirations = child.inspirations,
        settled_at = CASE WHEN child.final THEN clock_timestamp() END
    FROM json_to_recordset(CAST(%(children)s AS json)) AS child(
        id bigint, state text, program text, changes text, fitness float8, verified boolean,
        stages_left int, failure_kind text, failure_detail text, final boolean,
        epoch int, generation int, parents text[], inspirations text[], role text
    )
    WHERE proposals.id = ANY(%(ids)s) AND proposals.id = child.id AND proposals.settled_at IS NULL
"""
"""The ids are told twice: a plan made while the tables were small would scan them for ever."""
DRAFTED = """
    UPDATE proposals SET epoch = draft.epoch, generation = draft.generation,
        parents = draft.parents, inspirations = draft.inspirations, role = draft.role
    FROM json_to_recordset(CAST(%(drafts)s AS json)) AS draft(
        id bigint, epoch int, generation int, parents text[], inspirations text[], role text
    )
    WHERE proposals.id = ANY(%(ids)s) AND proposals.id = draft.id
        AND proposals.epoch IS NULL
    RETURNING proposals.cohort
"""
"""Writes the parents that were drawn where there are none yet, cut proposals included, and returns
the cohorts where it did; part of a statement, told with `drafted`.
"""


def claim_cohorts(
    c: Connection, cohorts: Sequence[CohortId], lease: float, attempts: int
) -> list[tuple[Run, Cohort]]:
    claimed = []
    for found in rows(c, _CLAIM, {"cohorts": sorted(cohorts), "lease": lease}):
        run = run_of(c, found)
        for one in found.claimed:
            if one["attempts"] > attempts:
                raise Exhausted(run.id, one["id"], attempts)
            claimed.append((run, _cohort(one, one["members"], ())))
    return claimed


def cohort(c: Connection, cohort: CohortId) -> tuple[Run, Cohort]:
    found = row(c, _LOCK, {"cohorts": [cohort]})
    held = row(c, _CONTENTS_OF_ONE, {"cohort": cohort})
    [locked] = found.locked
    return run_of(c, found), _cohort(locked, held.members, _tested(held))


def _cohort(
    found: Mapping[str, Any],
    members: Iterable[Mapping[str, Any]],
    trials: Iterable[tuple[Trial, Evaluation | None]],
) -> Cohort:
    return Cohort(
        id=found["id"],
        run=found["run"],
        island=found["island"],
        operator=found["operator"],
        members=tuple(member_of(member) for member in members),
        trials=dict(trials),
        founding=found["founding"],
    )


def _tested(held: Any) -> list[tuple[Trial, Evaluation | None]]:
    return [(trial_of(one), evaluation_of(one["evaluation"])) for one in held.trials or ()]


def planned(c: Connection, cohorts: Sequence[CohortId]) -> tuple[Run, set[CohortId]]:
    found = row(c, _LOCK, {"cohorts": list(cohorts)})
    run = run_of(c, found)
    return run, set() if run.state.final else {o["id"] for o in found.locked if not o["bred"]}


def record(c: Connection, measured: Sequence[TrialResult]) -> tuple[Run, list[Cohort]] | None:
    found = row(c, _LOCK, {"cohorts": sorted({one.cohort for one in measured})})
    run = run_of(c, found)
    if run.state.final:
        return None
    evaluations = {one.id: one.evaluation for one in measured}
    told = [
        {
            "id": trial,
            "evaluation": evaluation_json(evaluation),
            "wall": evaluation.wall_seconds,
            "cpu": evaluation.cpu_seconds,
        }
        for trial, evaluation in evaluations.items()
    ]
    recorded = rows(c, _RECORD, {"trials": list(evaluations), "measured": as_json(told)})
    locked = {one["id"]: one for one in found.locked}
    return (run, [_with(one, locked, evaluations) for one in recorded]) if recorded else None


def _with(
    held: Any, locked: Mapping[CohortId, Any], evaluations: Mapping[TrialId, Evaluation]
) -> Cohort:
    """Returns a cohort with what was just recorded in the place of what was not known before."""
    new = [(trial_of(one), evaluations[one["id"]]) for one in held.recorded]
    return _cohort(locked[held.id], held.members, [*_tested(held), *new])


def enter(c: Connection, cohorts: Sequence[Cohort], children: Sequence[MemberResult]) -> None:
    drafts = {member.id: member.draft for cohort in cohorts for member in cohort.members}
    entered = [_entered(child, drafts[child.proposal]) for child in children]
    ids = [child.proposal for child in children]
    told = {"cohorts": [cohort.id for cohort in cohorts], "ids": ids, "children": as_json(entered)}
    write(c, _ENTER, told)


def _entered(child: MemberResult, draft: Draft | None) -> dict[str, Any]:
    return {
        "id": child.proposal,
        "state": child.state,
        "program": child.program,
        "changes": clean(child.changes) or None,
        "fitness": child.fitness,
        "verified": child.verified,
        "stages_left": child.stages_left,
        "failure_kind": child.failure.kind if child.failure else None,
        "failure_detail": clean(child.failure.detail) if child.failure else None,
        "final": child.state.final,
        **draft_columns(draft),
    }


def draft_columns(draft: Draft | None) -> dict[str, Any]:
    """Returns what a proposal's row holds of its draft."""
    return {
        "epoch": draft.epoch if draft else None,
        "generation": draft.generation if draft else None,
        "parents": list(draft.parents) if draft else [],
        "inspirations": list(draft.inspirations) if draft else [],
        "role": draft.role if draft and draft.role is not Role.GENERATOR else None,
    }


def drafted(turns: Sequence[Turn]) -> dict[str, Any]:
    """Returns what `DRAFTED` is told of members that had no draft."""
    new = [
        {"id": member.id, **draft_columns(draft)}
        for turn in turns
        for member, draft in zip(turn.cohort.members, turn.drafts, strict=bool(turn.drafts))
        if member.draft is None
    ]
    return {"ids": [one["id"] for one in new], "drafts": as_json(new)}
