"""Cohorts and their proposals."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, text

from app.adapters.store import tables as t
from app.adapters.store.codec import clean, evaluation_of, member_of, run_of, trial_of
from app.adapters.store.runs import RUN_COLUMNS, count_planned, count_tokens
from app.domain.cohort import Cohort, CohortId, Member
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
_CLAIM = text(f"""
    UPDATE cohorts SET leased_until = now() + :lease * interval '1 second',
        ring_at = now() + :lease * interval '1 second', attempts = attempts + 1
    FROM runs JOIN problems ON problems.digest = runs.problem
    WHERE cohorts.id = :cohort AND NOT cohorts.bred AND runs.id = cohorts.run
        AND runs.state IN ('running', 'paused')
        AND (cohorts.leased_until IS NULL OR cohorts.leased_until < now())
    RETURNING cohorts.island AS cohort_island, cohorts.operator, cohorts.founding,
        cohorts.attempts, {RUN_COLUMNS}
""")
_LOCK = text(f"""
    SELECT cohorts.island AS cohort_island, cohorts.operator, cohorts.founding, {RUN_COLUMNS}
    FROM cohorts JOIN runs ON runs.id = cohorts.run JOIN problems ON problems.digest = runs.problem
    WHERE cohorts.id = :cohort FOR UPDATE OF cohorts
""")
_DRAFT = text("""
    UPDATE proposals SET epoch = :epoch, generation = :generation, parents = :parents,
        inspirations = :inspirations
    WHERE cohort = :cohort AND ordinal = :ordinal
""")
_ENTER = text("""
    UPDATE proposals SET state = :state, program = coalesce(:program, program),
        changes = coalesce(:changes, changes), fitness = :fitness, verified = :verified,
        failure_kind = :failure_kind, failure_detail = :failure_detail,
        settled_at = CASE WHEN :final THEN clock_timestamp() END
    WHERE id = :id AND settled_at IS NULL
""")
_BRED = text("UPDATE cohorts SET bred = true, leased_until = NULL WHERE id = :cohort AND NOT bred")
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
    return run_of(row), _cohort(row, cohort, _members(c, cohort), {})


def cohort(c: Connection, cohort: CohortId) -> tuple[Run, Cohort]:
    row = c.execute(_LOCK, {"cohort": cohort}).mappings().one()
    found = c.execute(
        select(t.trials.c.stage, t.trials.c.players, t.trials.c.cases, t.trials.c.evaluation)
        .where(t.trials.c.cohort == cohort)
        .order_by(t.trials.c.id)
    )
    trials = {trial_of(one): evaluation_of(one.evaluation) for one in found}
    return run_of(row), _cohort(row, cohort, _members(c, cohort), trials)


def _cohort(row: Any, cohort: CohortId, members: tuple[Member, ...], trials: Any) -> Cohort:
    return Cohort(
        cohort, row["id"], row["cohort_island"], row["operator"], members, trials, row["founding"]
    )


def _members(c: Connection, cohort: CohortId) -> tuple[Member, ...]:
    p = t.proposals.c
    rows = c.execute(
        select(
            p.id,
            p.ordinal,
            p.island,
            p.state,
            p.epoch,
            p.generation,
            p.parents,
            p.inspirations,
            p.program,
        )
        .where(p.cohort == cohort)
        .order_by(p.id)
    )
    return tuple(member_of(row) for row in rows)


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
    if any(not member.state.final and member.program is None for member in cohort.members):
        c.execute(_BRED, {"cohort": cohort.id})
    c.execute(
        _ENTER,
        [
            {
                "id": child.proposal,
                "state": child.state,
                "program": child.program,
                "changes": clean(child.changes) or None,
                "fitness": child.fitness,
                "verified": child.verified,
                "failure_kind": child.failure.kind if child.failure else None,
                "failure_detail": clean(child.failure.detail) if child.failure else None,
                "final": child.state.final,
            }
            for child in children
        ],
    )


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
