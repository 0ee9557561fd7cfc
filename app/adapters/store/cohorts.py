"""Cohorts and their proposals."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from app.adapters.store.codec import (
    as_json,
    clean,
    evaluation_of,
    member_of,
    trial_of,
)
from app.adapters.store.driver import DriverConnection, Json, Record
from app.adapters.store.runs import RUN_COLUMNS, count_planned, run_of
from app.domain.evaluation import Evaluation, Trial
from app.domain.operator import Draft, Role
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, ProposalId
from app.ports.cohorts import MemberResult, Plan
from app.ports.completions import Turn

MEMBERS = """
    (SELECT json_agg(member ORDER BY member.id) FROM (
        SELECT proposals.id, ordinal, island, state, epoch, generation, parents, inspirations,
            role, program, seed, reserved, programs.length,
            begun_at IS NOT NULL OR visible_at IS NULL AS begun
        FROM proposals LEFT JOIN programs ON programs.id = proposals.program
        WHERE proposals.cohort = {cohort}
    ) AS member)
"""
_ADD = """
    INSERT INTO cohorts (run, island, operator, size)
    SELECT %(run)s, island, operator, size
    FROM unnest(CAST(%(islands)s AS int[]), CAST(%(operators)s AS text[]), CAST(%(sizes)s AS int[]))
        WITH ORDINALITY AS plan(island, operator, size, place)
    ORDER BY place RETURNING id
"""
_ADD_PROPOSALS = """
    INSERT INTO proposals (run, cohort, island, ordinal, seed, reserved, fleet, state, visible_at)
    SELECT %(run)s, cohort, island, ordinal, seed, reserved, fleet, 'planned',
        CASE WHEN leads THEN now() + %(again)s * interval '1 second' END
    FROM json_to_recordset(CAST(%(members)s AS json)) AS member(
        cohort bigint, place int, island int, ordinal int, seed bool, reserved int, leads bool,
        fleet text
    )
    ORDER BY cohort, place RETURNING id, visible_at IS NOT NULL AS leads, fleet
"""
_DRAFT = """
    UPDATE proposals SET epoch = %(epoch)s, generation = %(generation)s, parents = %(parents)s,
        inspirations = %(inspirations)s
    WHERE cohort = %(cohort)s AND ordinal = %(ordinal)s
"""
_ADD_WITHOUT_MEMBERS = """
    INSERT INTO cohorts (run, island, operator, size)
    VALUES (%(run)s, 0, %(operator)s, 0) RETURNING id
"""
_UNSETTLED = """
    SELECT DISTINCT cohort FROM proposals
    WHERE run = %(run)s AND state IN ('planned', 'testing') ORDER BY cohort
"""
_LATE = """
    SELECT DISTINCT waiting.cohort
    FROM proposals AS waiting JOIN proposals AS first ON first.cohort = waiting.cohort
    WHERE waiting.run = %(run)s AND waiting.state IN ('planned', 'testing') AND NOT waiting.seed
        AND first.begun_at < now() - %(seconds)s * interval '1 second'
    ORDER BY waiting.cohort
"""
LOCK = f"""
    WITH locked AS (
        SELECT id, run, island, operator FROM cohorts
        WHERE id = ANY(%(cohorts)s) ORDER BY id FOR NO KEY UPDATE
    )
    SELECT (SELECT json_agg(locked ORDER BY id) FROM locked) AS locked, {RUN_COLUMNS}
    FROM runs WHERE runs.id = (SELECT min(run) FROM locked)
"""
"""Not `FOR UPDATE`: a transaction that saves a completion holds its run's row, and refers to a
cohort after that."""
_LOCK_PLANNED = f"""
    WITH locked AS (
        SELECT proposals.id, proposals.run, proposals.state
        FROM cohorts JOIN proposals ON proposals.cohort = cohorts.id
        WHERE proposals.id = ANY(%(proposals)s) ORDER BY cohorts.id, proposals.id
        FOR NO KEY UPDATE
    )
    SELECT (SELECT json_agg(id) FROM locked WHERE state = 'planned') AS planned, {RUN_COLUMNS}
    FROM runs WHERE runs.id = (SELECT min(run) FROM locked)
"""
"""The proposals are locked too, so that their states are those of after the wait."""
CONTENTS = f"""
    SELECT cohorts.id, {MEMBERS.format(cohort="cohorts.id")} AS members,
        (SELECT json_agg(trial ORDER BY trial.id) FROM (
            SELECT id, stage, players, cases, evaluation FROM trials
            WHERE trials.cohort = cohorts.id
        ) AS trial) AS trials
"""
"""Read after the lock: a statement that waits for a lock has a snapshot from before the wait."""
_CONTENTS_OF = f"{CONTENTS} FROM cohorts WHERE id = ANY(%(cohorts)s) ORDER BY id"
_ENTER = """
    UPDATE proposals SET leased_until = NULL, state = child.state,
        program = coalesce(child.program, proposals.program),
        changes = coalesce(child.changes, proposals.changes),
        fitness = child.fitness, verified = child.verified, stages_left = child.stages_left,
        failure_kind = child.failure_kind, failure_detail = child.failure_detail,
        cut_reason = child.cut_reason,
        epoch = child.epoch, generation = child.generation, role = child.role,
        parents = child.parents, inspirations = child.inspirations,
        family = coalesce(child.family, proposals.family),
        numbers = coalesce(child.numbers, proposals.numbers),
        fleet = coalesce(child.fleet, proposals.fleet),
        settled_at = CASE WHEN child.state NOT IN ('planned', 'testing') THEN clock_timestamp() END
    FROM json_populate_recordset(NULL::proposals, CAST(%(children)s AS json)) AS child
    WHERE proposals.id = ANY(%(ids)s) AND proposals.id IN (
        SELECT id FROM proposals WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE
    ) AND proposals.id = child.id AND proposals.settled_at IS NULL
"""
"""Rows are locked in the order of ids first; an update alone locks them in that of its plan,
which after a bitmap scan is that of places on disk.  The ids are compared with the table too:
a plan that was made while the tables were small would scan them for ever.
"""
DRAFTED = """
    UPDATE proposals SET epoch = draft.epoch, generation = draft.generation,
        parents = draft.parents, inspirations = draft.inspirations, role = draft.role
    FROM json_populate_recordset(NULL::proposals, CAST(%(drafts)s AS json)) AS draft
    WHERE proposals.id = ANY(%(ids)s) AND proposals.id IN (
        SELECT id FROM proposals WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE
    ) AND proposals.id = draft.id
        AND proposals.epoch IS NULL
    RETURNING proposals.id
"""
"""Writes the parents that were drawn where there are none yet, cut proposals included, and returns
the proposals where it did; part of a statement, whose parameters `drafted` returns.
"""


def cohort_of(
    result: Json,
    members: Iterable[Json] | None,
    trials: Iterable[tuple[Trial, Evaluation | None]],
) -> Cohort:
    return Cohort(
        id=result["id"],
        run=result["run"],
        island=result["island"],
        operator=result["operator"],
        members=tuple(member_of(member) for member in members or ()),
        trials=dict(trials),
    )


def tested(held: Record) -> list[tuple[Trial, Evaluation | None]]:
    return [(trial_of(record), evaluation_of(record["evaluation"])) for record in held.trials or ()]


def _entered(child: MemberResult, draft: Draft | None) -> dict[str, object]:
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
        "cut_reason": child.cut,
        "family": child.point.family if child.point else None,
        "numbers": list(child.point.numbers) if child.point else None,
        "fleet": child.fleet,
        **draft_columns(draft),
    }


def draft_columns(draft: Draft | None) -> dict[str, object]:
    """Returns what a proposal's row holds of its draft."""
    return {
        "epoch": draft.epoch if draft else None,
        "generation": draft.generation if draft else None,
        "parents": list(draft.parents) if draft else [],
        "inspirations": list(draft.inspirations) if draft else [],
        "role": draft.role if draft and draft.role is not Role.GENERATOR else None,
    }


def drafted(turns: Sequence[Turn]) -> dict[str, object]:
    """Returns the parameters of `DRAFTED`: the members that had no draft."""
    new = [
        {"id": member.id, **draft_columns(draft)}
        for turn in turns
        for member, draft in zip(turn.cohort.members, turn.drafts, strict=bool(turn.drafts))
        if member.draft is None
    ]
    return {"ids": [record["id"] for record in new], "drafts": as_json(new)}


class SqlCohorts:
    """See `app.ports.cohorts.Cohorts`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def add(
        self, run: int, plans: Sequence[Plan], *, redeliver_seconds: float
    ) -> dict[ProposalId, str]:
        added = self._c.values(
            _ADD,
            {
                "run": run,
                "islands": [plan.island for plan in plans],
                "operators": [plan.operator for plan in plans],
                "sizes": [len(plan.ordinals) for plan in plans],
            },
        )
        ids = sorted(added)
        members = [
            {
                "cohort": cohort,
                "place": place,
                "island": plan.island,
                "ordinal": ordinal,
                "seed": plan.seeding,
                "reserved": plan.reserved[place] if plan.reserved else 0,
                "leads": place == 0 or not plan.together,
                "fleet": plan.fleet,
            }
            for cohort, plan in zip(ids, plans, strict=True)
            for place, ordinal in enumerate(plan.ordinals)
        ]
        params = {"run": run, "again": redeliver_seconds, "members": as_json(members)}
        proposals = self._c.rows(_ADD_PROPOSALS, params)
        for cohort, plan in zip(ids, plans, strict=True):
            for draft in plan.drafts:
                self._c.write(
                    _DRAFT,
                    {"cohort": cohort, "ordinal": draft.ordinal, **draft_columns(draft)},
                )
        counted = [plan for plan in plans if not plan.seeding]
        if counted:
            members_planned = sum(len(plan.ordinals) for plan in counted)
            spent = sum(plan.proposals for plan in counted)
            count_planned(self._c, run, len(counted), spent, members_planned)
        return {one.id: one.fleet for one in sorted(proposals) if one.leads}

    def add_without_members(self, run: int, operator: str) -> Cohort:
        number = self._c.value(_ADD_WITHOUT_MEMBERS, {"run": run, "operator": operator})
        return Cohort(int(number), run, 0, operator, (), {})

    def lock(self, cohort: CohortId) -> tuple[Run, Cohort]:
        result = self._c.row(LOCK, {"cohorts": [cohort]})
        held = self._c.row(_CONTENTS_OF, {"cohorts": [cohort]})
        [locked] = result.locked
        return run_of(self._c, result), cohort_of(locked, held.members, tested(held))

    def lock_planned(self, proposals: Sequence[ProposalId]) -> tuple[Run, set[ProposalId]]:
        result = self._c.row(_LOCK_PLANNED, {"proposals": sorted(proposals)})
        run = run_of(self._c, result)
        return run, set() if run.state.final else set(result.planned or ())

    def contents(self, cohorts: Sequence[Cohort]) -> list[Cohort]:
        by_id = {cohort.id: cohort for cohort in cohorts}
        result = self._c.rows(_CONTENTS_OF, {"cohorts": sorted(by_id)})
        return [
            replace(
                by_id[held.id],
                members=tuple(member_of(member) for member in held.members),
                trials=dict(tested(held)),
            )
            for held in result
        ]

    def enter(self, cohorts: Sequence[Cohort], results: Sequence[MemberResult]) -> None:
        drafts = {member.id: member.draft for cohort in cohorts for member in cohort.members}
        entered = [_entered(child, drafts[child.proposal]) for child in results]
        ids = [child.proposal for child in results]
        self._c.write(_ENTER, {"ids": ids, "children": as_json(entered)})

    def unsettled(self, run: int) -> list[CohortId]:
        return self._c.values(_UNSETTLED, {"run": run})

    def late(self, run: int, seconds: float) -> list[CohortId]:
        return self._c.values(_LATE, {"run": run, "seconds": seconds})
