"""Founding: a run enters the ledger with the cohort of its seeds."""

from collections.abc import Sequence
from dataclasses import replace

from app.domain.events import Started
from app.domain.operator import Draft
from app.domain.problem import Problem
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.cohort import ProposalId
from app.domain.search.form_mix import ALIKE, EARLIER_PROPOSALS, EARLIER_RUNS, suggested_weights
from app.domain.search.strategy import Ranking
from app.engine.context import Context
from app.ports.cohorts import Plan
from app.ports.ledger import Transaction
from app.ports.runs import NewRun

SEEDING = "seed"
"""The operator of a run's first cohort: its children are their parents."""


def found_run(
    ctx: Context, tx: Transaction, problem: Problem, new: NewRun, seeds: Sequence[ProgramId]
) -> tuple[Run, dict[ProposalId, str]]:
    """Creates a run and the cohort of its seeds, which are in the ledger.

    Returns:
      The run, and the proposals to enqueue once the transaction has committed, with the labels of
      their fleets.

    Raises:
      ValueError: The run's name is taken.
    """
    drafts = tuple(Draft(-1 - n, 0, 0, 0, (program,)) for n, program in enumerate(seeds))
    run = _learn_operators(ctx, tx, tx.runs.add(new), problem)
    seeding = Plan(
        0,
        SEEDING,
        tuple(draft.ordinal for draft in drafts),
        drafts,
        seeding=True,
        together=True,
        fleet=run.rules.fleets.generation(0, lambda: run.rng(-1, "fleet")),
    )
    loaded = replace(ctx, problem=lambda digest: problem)  # noqa: ARG005  not committed yet
    if run.rules.recipe and loaded.strategy(run).ranking is Ranking.RELATIVE:
        tx.runs.set_ranking(run.id, Ranking.RELATIVE)
        run = replace(run, ranking=Ranking.RELATIVE)
    proposals = tx.cohorts.add(run.id, [seeding], redeliver_seconds=ctx.pace.redeliver_seconds)
    operators = dict(run.operators)
    fact = Started(seed=run.seed, budget=run.budget.proposals, operators=operators)
    tx.events.emit(run.id, fact)
    return run, proposals


def _learn_operators(ctx: Context, tx: Transaction, run: Run, problem: Problem) -> Run:
    """Gives the operators of a run the weights that earlier runs suggest for its models."""
    if not run.rules.search.learn_forms:
        return run
    forms = [name for name in run.operators if ctx.operators[name].form]
    if len(forms) < 2:
        return run
    lengths = [seed.length for seed in problem.seeds]
    chars = (int(min(lengths) / ALIKE), int(max(lengths) * ALIKE))
    models = run.rules.asking.generators
    written = tx.completions.written_before(models, chars, EARLIER_RUNS, EARLIER_PROPOSALS)
    weights = suggested_weights(run.operators, forms, written)
    if weights != run.operators:
        tx.runs.set_operators(run.id, weights)
    return replace(run, operators=weights)
