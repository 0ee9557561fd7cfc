"""Cohorts and their proposals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from app.adapters.store.codec import (
    clean,
    evaluation_of,
    member_of,
    trial_of,
)
from app.adapters.store.driver import row, rows, values, write
from app.adapters.store.runs import RUN_COLUMNS, as_json, count_planned, run_of
from app.domain.evaluation import Evaluation, Trial
from app.domain.operator import Draft, Role
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId
from app.ports.ledger import Exhausted
from app.ports.records import MemberResult, Plan, Turn

_MEMBERS = """
    (SELECT json_agg(member ORDER BY member.id) FROM (
        SELECT proposals.id, ordinal, island, state, epoch, generation, parents, inspirations,
            role, program, programs.length
        FROM proposals LEFT JOIN programs ON programs.id = proposals.program
        WHERE proposals.cohort = {cohort}
    ) AS member)
"""
_ADD = """
    INSERT INTO cohorts (run, island, operator, founding, visible_at)
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
_DRAFT = """
    UPDATE proposals SET epoch = %(epoch)s, generation = %(generation)s, parents = %(parents)s,
        inspirations = %(inspirations)s
    WHERE cohort = %(cohort)s AND ordinal = %(ordinal)s
"""
_UNSETTLED = """
    SELECT DISTINCT cohort FROM proposals
    WHERE run = %(run)s AND state IN ('planned', 'testing') ORDER BY cohort
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
LOCK = f"""
    WITH locked AS (
        SELECT id, run, island, operator, founding, bred FROM cohorts
        WHERE id = ANY(%(cohorts)s) ORDER BY id FOR NO KEY UPDATE
    )
    SELECT (SELECT json_agg(locked ORDER BY id) FROM locked) AS locked, {RUN_COLUMNS}
    FROM runs WHERE runs.id = (SELECT min(run) FROM locked)
"""
"""Not `FOR UPDATE`: who saves a completion holds its run, and refers to a cohort after that."""
CONTENTS = f"""
    SELECT cohorts.id, {_MEMBERS.format(cohort="cohorts.id")} AS members,
        (SELECT json_agg(trial ORDER BY trial.id) FROM (
            SELECT id, stage, players, cases, evaluation FROM trials
            WHERE trials.cohort = cohorts.id
        ) AS trial) AS trials
"""
"""Read after the lock: a statement that waits for a lock has a snapshot from before the wait."""
_CONTENTS_OF_ONE = f"{CONTENTS} FROM cohorts WHERE id = %(cohort)s"
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


def cohort_of(
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


def tested(held: Any) -> list[tuple[Trial, Evaluation | None]]:
    return [(trial_of(one), evaluation_of(one["evaluation"])) for one in held.trials or ()]


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


class SqlCohorts:
    """See `app.ports.ledger.Cohorts`."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def add(self, run: int, plans: Sequence[Plan], *, redeliver_seconds: float) -> list[CohortId]:
        added = values(
            self._c,
            _ADD,
            {
                "run": run,
                "again": redeliver_seconds,
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
            self._c,
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
                write(
                    self._c,
                    _DRAFT,
                    {"cohort": cohort, "ordinal": one.ordinal, **draft_columns(one)},
                )
        counted = [plan for plan in plans if not plan.founding]
        if counted:
            count_planned(self._c, run, len(counted), sum(len(plan.ordinals) for plan in counted))
        return ids

    def claim(
        self, cohorts: Sequence[CohortId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, Cohort]]:
        claimed = []
        for found in rows(self._c, _CLAIM, {"cohorts": sorted(cohorts), "lease": lease_seconds}):
            run = run_of(self._c, found)
            for one in found.claimed:
                if one["attempts"] > attempts:
                    raise Exhausted(run.id, one["id"], attempts)
                claimed.append((run, cohort_of(one, one["members"], ())))
        return claimed

    def lock(self, cohort: CohortId) -> tuple[Run, Cohort]:
        found = row(self._c, LOCK, {"cohorts": [cohort]})
        held = row(self._c, _CONTENTS_OF_ONE, {"cohort": cohort})
        [locked] = found.locked
        return run_of(self._c, found), cohort_of(locked, held.members, tested(held))

    def lock_planned(self, cohorts: Sequence[CohortId]) -> tuple[Run, set[CohortId]]:
        found = row(self._c, LOCK, {"cohorts": list(cohorts)})
        run = run_of(self._c, found)
        return run, set() if run.state.final else {o["id"] for o in found.locked if not o["bred"]}

    def enter(self, cohorts: Sequence[Cohort], results: Sequence[MemberResult]) -> None:
        drafts = {member.id: member.draft for cohort in cohorts for member in cohort.members}
        entered = [_entered(child, drafts[child.proposal]) for child in results]
        ids = [child.proposal for child in results]
        told = {
            "cohorts": [cohort.id for cohort in cohorts],
            "ids": ids,
            "children": as_json(entered),
        }
        write(self._c, _ENTER, told)

    def unsettled(self, run: int) -> list[CohortId]:
        return values(self._c, _UNSETTLED, {"run": run})
