"""Cohorts and their proposals."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from app.adapters.store.codec import (
    clean,
    evaluation_json,
    evaluation_of,
    member_of,
    run_of,
    trial_of,
)
from app.adapters.store.driver import row, rows, value, values, write
from app.adapters.store.runs import RUN_COLUMNS, as_json, count_planned
from app.domain.cohort import Cohort, CohortId, TrialId
from app.domain.evaluation import Evaluation, Trial
from app.domain.operator import Draft, Role
from app.domain.run import Run
from app.entries import Backlog, Child, Plan
from app.ledger import Exhausted

_BACKLOG = """
    SELECT island, state, ordinal < 0 AS founding, count(*) AS n FROM proposals
    WHERE run = %(run)s AND state IN ('planned', 'testing') GROUP BY 1, 2, 3
"""
_WAITING = """
    SELECT operator, count(*) AS n FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
    WHERE proposals.run = %(run)s AND proposals.state = 'planned' GROUP BY 1
"""
_LASTS = """
    SELECT coalesce(avg(extract(epoch FROM settled_at - planned_at)), 0)::float8 FROM (
        SELECT settled_at, planned_at FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
        WHERE proposals.run = %(run)s AND settled_at IS NOT NULL AND ordinal >= 0
        ORDER BY settled_at DESC, proposals.id DESC LIMIT %(over)s
    ) AS newest
"""
_ADD_COHORTS = """
    INSERT INTO cohorts (run, island, operator, founding, ring_at)
    SELECT %(run)s, island, operator, founding, now() + %(again)s * interval '1 second'
    FROM unnest(CAST(%(islands)s AS int[]), CAST(%(operators)s AS text[]), CAST(%(founding)s
        AS bool[]))
        WITH ORDINALITY AS plan(island, operator, founding, place)
    ORDER BY place RETURNING id
"""
_ADD_PROPOSALS = """
    INSERT INTO proposals (run, cohort, island, ordinal, state)
    SELECT %(run)s, cohort, island, ordinal, 'planned'
    FROM unnest(CAST(%(cohorts)s AS bigint[]), CAST(%(islands)s AS int[]), CAST(%(ordinals)s
        AS int[]))
        AS plan(cohort, island, ordinal)
"""
_MEMBERS = """
    (SELECT json_agg(member ORDER BY member.id) FROM (
        SELECT proposals.id, ordinal, island, state, epoch, generation, parents, inspirations,
            role, program, programs.length
        FROM proposals LEFT JOIN programs ON programs.id = proposals.program
        WHERE proposals.cohort = {cohort}
    ) AS member)
"""
_CLAIM = f"""
    UPDATE cohorts SET leased_until = now() + %(lease)s * interval '1 second',
        attempts = attempts + 1
    FROM runs JOIN problems ON problems.digest = runs.problem
    WHERE cohorts.id = %(cohort)s AND NOT cohorts.bred AND runs.id = cohorts.run
        AND runs.state IN ('running', 'paused')
        AND (cohorts.leased_until IS NULL OR cohorts.leased_until < now())
    RETURNING cohorts.island AS cohort_island, cohorts.operator, cohorts.founding,
        cohorts.attempts, {_MEMBERS.format(cohort="cohorts.id")} AS members, {RUN_COLUMNS}
"""
_LOCK = f"""
    SELECT cohorts.island AS cohort_island, cohorts.operator, cohorts.founding, cohorts.bred,
        {RUN_COLUMNS}
    FROM cohorts JOIN runs ON runs.id = cohorts.run JOIN problems ON problems.digest = runs.problem
    WHERE cohorts.id = %(cohort)s FOR UPDATE OF cohorts
"""
_RECORD = """
    UPDATE trials SET evaluation = CAST(%(evaluation)s AS jsonb), wall_seconds = %(wall)s,
        cpu_seconds = %(cpu)s, leased_until = NULL
    WHERE id = %(trial)s AND evaluation IS NULL RETURNING stage, players, cases
"""
_CONTENTS = f"""
    SELECT {_MEMBERS.format(cohort="%(cohort)s")} AS members,
        (SELECT json_agg(trial ORDER BY trial.id) FROM (
            SELECT id, stage, players, cases, evaluation FROM trials WHERE cohort = %(cohort)s
        ) AS trial) AS trials
"""
"""Read after the lock: a statement that waits for a lock has a snapshot from before the wait."""
_RECORD_AND_CONTENTS = f"WITH recorded AS ({_RECORD}) {_CONTENTS}, recorded.* FROM recorded"
"""No row if the trial has an evaluation; `trials` are those of before."""
_DRAFT = """
    UPDATE proposals SET epoch = %(epoch)s, generation = %(generation)s, parents = %(parents)s,
        inspirations = %(inspirations)s
    WHERE cohort = %(cohort)s AND ordinal = %(ordinal)s
"""
_ENTER = """
    WITH done AS (
        UPDATE cohorts SET bred = true, leased_until = NULL WHERE id = %(cohort)s AND NOT bred
    )
    UPDATE proposals SET state = child.state,
        program = coalesce(child.program, proposals.program),
        changes = coalesce(child.changes, proposals.changes),
        fitness = child.fitness, verified = child.verified,
        failure_kind = child.failure_kind, failure_detail = child.failure_detail,
        epoch = child.epoch, generation = child.generation, role = child.role,
        parents = child.parents, inspirations = child.inspirations,
        settled_at = CASE WHEN child.final THEN clock_timestamp() END
    FROM json_to_recordset(CAST(%(children)s AS json)) AS child(
        id bigint, state text, program text, changes text, fitness float8, verified boolean,
        failure_kind text, failure_detail text, final boolean, epoch int, generation int,
        parents text[], inspirations text[], role text
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
        AND proposals.state = 'planned'
    RETURNING 1
"""
"""Writes the parents that were drawn, as part of a statement; told with `drafted`."""
_UNSETTLED = """
    SELECT DISTINCT cohort FROM proposals
    WHERE run = %(run)s AND state IN ('planned', 'testing') ORDER BY cohort
"""


def backlog(c: Connection, run: int) -> Backlog:
    states = {"planned": 0, "testing": 0}
    islands: dict[int, int] = {}
    founding = 0
    for one in rows(c, _BACKLOG, {"run": run}):
        states[one.state] += one.n
        if one.founding:
            founding += one.n
        else:
            islands[one.island] = islands.get(one.island, 0) + one.n
    return Backlog(states["planned"], states["testing"], islands, founding)


def waiting(c: Connection, run: int) -> dict[str, int]:
    return {one.operator: one.n for one in rows(c, _WAITING, {"run": run})}


def lasts_seconds(c: Connection, run: int, over: int) -> float:
    return float(value(c, _LASTS, {"run": run, "over": over}))


def add_cohorts(c: Connection, run: int, plans: Sequence[Plan], again: float) -> list[CohortId]:
    added = values(
        c,
        _ADD_COHORTS,
        {
            "run": run,
            "again": again,
            "islands": [plan.island for plan in plans],
            "operators": [plan.operator for plan in plans],
            "founding": [plan.founding for plan in plans],
        },
    )
    ids = sorted(added)
    members = [
        (cohort, plan.island, ordinal)
        for cohort, plan in zip(ids, plans, strict=True)
        for ordinal in plan.ordinals
    ]
    write(
        c,
        _ADD_PROPOSALS,
        {
            "run": run,
            "cohorts": [cohort for cohort, _, _ in members],
            "islands": [island for _, island, _ in members],
            "ordinals": [ordinal for _, _, ordinal in members],
        },
    )
    for cohort, plan in zip(ids, plans, strict=True):
        for one in plan.drafts:
            write(c, _DRAFT, {"cohort": cohort, "ordinal": one.ordinal, **_drafted(one)})
    counted = [plan for plan in plans if not plan.founding]
    if counted:
        count_planned(c, run, len(counted), sum(len(plan.ordinals) for plan in counted))
    return ids


def claim_cohort(
    c: Connection, cohort: CohortId, lease: float, attempts: int
) -> tuple[Run, Cohort] | None:
    claimed = row(c, _CLAIM, {"cohort": cohort, "lease": lease})
    if claimed is None:
        return None
    if claimed.attempts > attempts:
        raise Exhausted(claimed.id, attempts)
    return run_of(claimed), _cohort(claimed, cohort, claimed.members, [])


def cohort(c: Connection, cohort: CohortId) -> tuple[Run, Cohort]:
    locked = row(c, _LOCK, {"cohort": cohort})
    held = row(c, _CONTENTS, {"cohort": cohort})
    return run_of(locked), _cohort(locked, cohort, held.members, held.trials or [])


def _cohort(found: Any, cohort: CohortId, members: Any, trials: Any) -> Cohort:
    return Cohort(
        id=cohort,
        run=found.id,
        island=found.cohort_island,
        operator=found.operator,
        members=tuple(member_of(member) for member in members),
        trials={trial_of(trial): evaluation_of(trial["evaluation"]) for trial in trials},
        founding=found.founding,
    )


def planned(c: Connection, cohort: CohortId) -> Run | None:
    locked = row(c, _LOCK, {"cohort": cohort})
    run = run_of(locked)
    return None if locked.bred or run.state.final else run


def record(
    c: Connection, cohort: CohortId, trial: TrialId, evaluation: Evaluation
) -> tuple[Run, Cohort] | None:
    locked = row(c, _LOCK, {"cohort": cohort})
    run = run_of(locked)
    if run.state.final:
        return None
    held = row(
        c,
        _RECORD_AND_CONTENTS,
        {
            "cohort": cohort,
            "trial": trial,
            "evaluation": as_json(evaluation_json(evaluation)),
            "wall": evaluation.wall_seconds,
            "cpu": evaluation.cpu_seconds,
        },
    )
    if held is None:
        return None
    before = _cohort(locked, cohort, held.members, held.trials or [])
    recorded = Trial(held.stage, tuple(held.players), tuple(held.cases))
    return run, replace(before, trials={**before.trials, recorded: evaluation})


def enter(c: Connection, cohort: Cohort, children: Sequence[Child]) -> None:
    drafts = {member.id: member.draft for member in cohort.members}
    entered = [_entered(child, drafts[child.proposal]) for child in children]
    ids = [child.proposal for child in children]
    write(c, _ENTER, {"cohort": cohort.id, "ids": ids, "children": as_json(entered)})


def _entered(child: Child, draft: Draft | None) -> dict[str, Any]:
    return {
        "id": child.proposal,
        "state": child.state,
        "program": child.program,
        "changes": clean(child.changes) or None,
        "fitness": child.fitness,
        "verified": child.verified,
        "failure_kind": child.failure.kind if child.failure else None,
        "failure_detail": clean(child.failure.detail) if child.failure else None,
        "final": child.state.final,
        **_drafted(draft),
    }


def _drafted(draft: Draft | None) -> dict[str, Any]:
    return {
        "epoch": draft.epoch if draft else None,
        "generation": draft.generation if draft else None,
        "parents": list(draft.parents) if draft else [],
        "inspirations": list(draft.inspirations) if draft else [],
        "role": draft.role if draft and draft.role is not Role.GENERATOR else None,
    }


def unsettled(c: Connection, run: int) -> list[CohortId]:
    return values(c, _UNSETTLED, {"run": run})


def drafted(cohort: Cohort, drafts: Sequence[Draft]) -> dict[str, Any]:
    """Returns what `DRAFTED` is told of members that had no draft; `drafts` may be empty."""
    new = [
        {"id": member.id, **_drafted(draft)}
        for member, draft in zip(cohort.members, drafts, strict=bool(drafts))
        if member.draft is None
    ]
    return {"ids": [one["id"] for one in new], "drafts": as_json(new)}
