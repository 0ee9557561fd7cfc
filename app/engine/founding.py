"""Founding: a run enters the ledger with the cohort of its seeds."""

from collections.abc import Sequence
from dataclasses import replace

from app.domain.events import Started
from app.domain.operator import Draft
from app.domain.problem import Problem
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.cohort import ProposalId
from app.domain.search.strategy import Ranking
from app.engine.context import Context
from app.ports.ledger import Transaction
from app.ports.records import NewRun, Plan

SEEDING = "seed"
"""The operator of a run's first cohort: its children are their parents."""


def found(
    ctx: Context, tx: Transaction, problem: Problem, new: NewRun, seeds: Sequence[ProgramId]
) -> tuple[Run, list[ProposalId]]:
    """Creates a run and the cohort of its seeds, which are in the ledger.

    Returns:
      The run, and the proposals to enqueue once the transaction has committed.

    Raises:
      ValueError: The run's name is taken.
    """
    drafts = tuple(Draft(-1 - n, 0, 0, 0, (program,)) for n, program in enumerate(seeds))
    seeding = Plan(
        0, SEEDING, tuple(d.ordinal for d in drafts), drafts, seeding=True, together=True
    )
    run = tx.runs.add(new)
    loaded = replace(ctx, problem=lambda digest: problem)  # noqa: ARG005  not committed yet
    if run.rules.search.recipe and loaded.strategy(run).ranking is Ranking.RELATIVE:
        tx.runs.set_ranking(run.id, Ranking.RELATIVE)
    proposals = tx.cohorts.add(run.id, [seeding], redeliver_seconds=ctx.pace.redeliver_seconds)
    operators = dict(run.operators)
    fact = Started(seed=run.seed, budget=run.budget.proposals, operators=operators)
    tx.events.emit(run.id, fact)
    return run, proposals
