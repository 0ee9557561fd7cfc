"""Cohorts and their proposals."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, text

from app.adapters.store import tables as t
from app.adapters.store.codec import clean, evaluation_of, member_of, run_of, trial_of
from app.adapters.store.runs import RUN_COLUMNS, as_json, count_planned, count_tokens
from app.domain.cohort import Cohort, CohortId
from app.domain.operator import Completion, Draft
from app.domain.run import Run
from app.ledger import Backlog, Child, Exhausted, Plan

_BACKLOG = text("""
    SELECT island, state, ordinal < 0 AS founding, count(*) AS n FROM proposals
    WHERE run = :run AND state IN ('planned', 'testing') GROUP BY 1, 2, 3
""")
_ADD_COHORTS = text("""
    INSERT INTO cohorts (run, island, operator, founding, ring_at)
    SELECT :run, island, operator, founding, now() + :again * interval '1 second'
    FROM unnest(CAST(:islands AS int[]), CAST(:operators AS text[]), CAST(:founding AS bool[]))
        WITH ORDINALITY AS plan(island, operator, founding, place)
    ORDER BY place RETURNING id
""")
_ADD_PROPOSALS = text("""
    INSERT INTO proposals (run, cohort, island, ordinal, state)
    SELECT :run, cohort, island, ordinal, 'planned'
    FROM unnest(CAST(:cohorts AS bigint[]), CAST(:islands AS int[]), CAST(:ordinals AS int[]))
        AS plan(cohort, island, ordinal)
""")
_MEMBERS = """
    (SELECT json_agg(member ORDER BY member.id) FROM (
        SELECT proposals.id, ordinal, island, state, epoch, generation, parents, inspirations,
            program, programs.length
        FROM proposals LEFT JOIN programs ON programs.id = proposals.program
        WHERE proposals.cohort = {cohort}
    ) AS member)
"""
_CLAIM = text(f"""
    UPDATE cohorts SET leased_until = now() + :lease * interval '1 second',
        ring_at = now() + :lease * interval '1 second', attempts = attempts + 1
    FROM runs JOIN problems ON problems.digest = runs.problem
    WHERE cohorts.id = :cohort AND NOT cohorts.bred AND runs.id = cohorts.run
        AND runs.state IN ('running', 'paused')
        AND (cohorts.leased_until IS NULL OR cohorts.leased_until < now())
    RETURNING cohorts.island AS cohort_island, cohorts.operator, cohorts.founding,
        cohorts.attempts, {_MEMBERS.format(cohort="cohorts.id")} AS members, {RUN_COLUMNS}
""")
_LOCK = text(f"""
    SELECT cohorts.island AS cohort_island, cohorts.operator, cohorts.founding, {RUN_COLUMNS}
    FROM cohorts JOIN runs ON runs.id = cohorts.run JOIN problems ON problems.digest = runs.problem
    WHERE cohorts.id = :cohort FOR UPDATE OF cohorts
""")
_CONTENTS = text(f"""
    SELECT {_MEMBERS.format(cohort=":cohort")} AS members,
        (SELECT json_agg(trial ORDER BY trial.id) FROM (
            SELECT id, stage, players, cases, evaluation FROM trials WHERE cohort = :cohort
        ) AS trial) AS trials
""")
"""Read after the lock: a statement that waits for a lock has a snapshot from before the wait."""
_DRAFT = text("""
    UPDATE proposals SET epoch = :epoch, generation = :generation, parents = :parents,
        inspirations = :inspirations
    WHERE cohort = :cohort AND ordinal = :ordinal
""")
_ENTER = text("""
    WITH done AS (
        UPDATE cohorts SET bred = true, leased_until = NULL WHERE id = :cohort AND NOT bred
    )
    UPDATE proposals SET state = child.state,
        program = coalesce(child.program, proposals.program),
        changes = coalesce(child.changes, proposals.changes),
        fitness = child.fitness, verified = child.verified,
        failure_kind = child.failure_kind, failure_detail = child.failure_detail,
        epoch = child.epoch, generation = child.generation,
        parents = coalesce(
            proposals.parents, ARRAY(SELECT json_array_elements_text(child.parents))
        ),
        inspirations = coalesce(
            proposals.inspirations, ARRAY(SELECT json_array_elements_text(child.inspirations))
        ),
        settled_at = CASE WHEN child.final THEN clock_timestamp() END
    FROM json_to_recordset(CAST(:children AS json)) AS child(
        id bigint, state text, program text, changes text, fitness float8, verified boolean,
        failure_kind text, failure_detail text, final boolean, epoch int, generation int,
        parents json, inspirations json
    )
    WHERE proposals.id = child.id AND proposals.settled_at IS NULL
""")
_UNSETTLED = text("""
    SELECT DISTINCT cohort FROM proposals
    WHERE run = :run AND state IN ('planned', 'testing') ORDER BY cohort
""")


def backlog(c: Connection, run: int) -> Backlog:
    states = {"planned": 0, "testing": 0}
    islands: dict[int, int] = {}
    founding = 0
    for row in c.execute(_BACKLOG, {"run": run}):
        states[row.state] += row.n
        if row.founding:
            founding += row.n
        else:
            islands[row.island] = islands.get(row.island, 0) + row.n
    return Backlog(states["planned"], states["testing"], islands, founding)


def add_cohorts(c: Connection, run: int, plans: Sequence[Plan], again: float) -> list[CohortId]:
    added = c.execute(
        _ADD_COHORTS,
        {
            "run": run,
            "again": again,
            "islands": [plan.island for plan in plans],
            "operators": [plan.operator for plan in plans],
            "founding": [plan.founding for plan in plans],
        },
    )
    ids = sorted(added.scalars())
    members = [
        (cohort, plan.island, ordinal)
        for cohort, plan in zip(ids, plans, strict=True)
        for ordinal in plan.ordinals
    ]
    c.execute(
        _ADD_PROPOSALS,
        {
            "run": run,
            "cohorts": [cohort for cohort, _, _ in members],
            "islands": [island for _, island, _ in members],
            "ordinals": [ordinal for _, _, ordinal in members],
        },
    )
    for cohort, plan in zip(ids, plans, strict=True):
        if plan.drafts:
            draft(c, cohort, plan.drafts)
    counted = [plan for plan in plans if not plan.founding]
    if counted:
        count_planned(c, run, len(counted), sum(len(plan.ordinals) for plan in counted))
    return ids


def claim_cohort(
    c: Connection, cohort: CohortId, lease: float, attempts: int
) -> tuple[Run, Cohort] | None:
    row = c.execute(_CLAIM, {"cohort": cohort, "lease": lease}).mappings().first()
    if row is None:
        return None
    if row["attempts"] > attempts:
        raise Exhausted(row["id"], attempts)
    return run_of(row), _cohort(row, cohort, row["members"], [])


def cohort(c: Connection, cohort: CohortId) -> tuple[Run, Cohort]:
    row = c.execute(_LOCK, {"cohort": cohort}).mappings().one()
    held = c.execute(_CONTENTS, {"cohort": cohort}).one()
    return run_of(row), _cohort(row, cohort, held.members, held.trials or [])


def _cohort(row: Any, cohort: CohortId, members: Any, trials: Any) -> Cohort:
    return Cohort(
        id=cohort,
        run=row["id"],
        island=row["cohort_island"],
        operator=row["operator"],
        members=tuple(member_of(member) for member in members),
        trials={trial_of(trial): evaluation_of(trial["evaluation"]) for trial in trials},
        founding=row["founding"],
    )


def draft(c: Connection, cohort: CohortId, drafts: Sequence[Draft]) -> None:
    c.execute(
        _DRAFT,
        [
            {
                "cohort": cohort,
                "ordinal": one.ordinal,
                "epoch": one.epoch,
                "generation": one.generation,
                "parents": list(one.parents),
                "inspirations": list(one.inspirations),
            }
            for one in drafts
        ],
    )


def enter(c: Connection, cohort: Cohort, children: Sequence[Child]) -> None:
    drafts = {member.id: member.draft for member in cohort.members}
    rows = [_entered(child, drafts[child.proposal]) for child in children]
    c.execute(_ENTER, {"cohort": cohort.id, "children": as_json(rows)})


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
        "epoch": draft.epoch if draft else None,
        "generation": draft.generation if draft else None,
        "parents": draft.parents if draft else (),
        "inspirations": draft.inspirations if draft else (),
    }


def unsettled(c: Connection, run: int) -> list[CohortId]:
    return list(c.execute(_UNSETTLED, {"run": run}).scalars())


def completions(c: Connection, cohort: CohortId, turn: int) -> list[Completion]:
    rows = c.execute(
        select(t.completions)
        .where(t.completions.c.cohort == cohort, t.completions.c.turn == turn)
        .order_by(t.completions.c.place)
    )
    return [
        Completion(
            row.text,
            row.model,
            row.finish,
            row.prompt_tokens,
            row.completion_tokens,
            row.wall_seconds,
            row.cost_usd,
        )
        for row in rows
    ]


def save_completions(
    c: Connection, cohort: Cohort, turn: int, completions: Sequence[Completion]
) -> None:
    c.execute(
        insert(t.completions),
        [
            {
                "cohort": cohort.id,
                "turn": turn,
                "place": place,
                "text": clean(one.text),
                "model": one.model,
                "finish": one.finish,
                "prompt_tokens": one.prompt_tokens,
                "completion_tokens": one.completion_tokens,
                "wall_seconds": one.wall_seconds,
                "cost_usd": one.cost_usd,
            }
            for place, one in enumerate(completions)
        ],
    )
    tokens = sum(one.prompt_tokens + one.completion_tokens for one in completions)
    if tokens:
        count_tokens(c, cohort.run, tokens)
