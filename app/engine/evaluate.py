"""Evaluate: trials are run in the sandbox, and their cohorts advance."""

from collections.abc import Iterator, Sequence
from functools import partial

from app.domain.run import Run
from app.domain.search.cohort import TrialId
from app.engine.advance import Advance, advance
from app.engine.attempt import attempt
from app.engine.context import Context, Pace
from app.engine.enqueue import enqueue
from app.ports.ledger import Transaction
from app.ports.records import LeasedTrial, TrialResult


def evaluate(ctx: Context, *trials: TrialId) -> None:
    """Runs trials of one run, one after the other, and records their evaluations together.

    Idempotent: the first evaluation recorded stays.

    Raises:
      Unavailable: See `attempt`.
    """
    attempt(ctx, "trial", trials, claim_trials, _evaluations, record)


def claim_trials(
    tx: Transaction, trials: Sequence[TrialId], pace: Pace
) -> list[tuple[Run, LeasedTrial]]:
    """Leases trials."""
    return tx.trials.claim(trials, pace.lease_seconds, attempts=pace.attempts)


def _evaluations(ctx: Context, run: Run, leased: Sequence[LeasedTrial]) -> Iterator[TrialResult]:
    problem = ctx.problem(run.problem)
    for trial in leased:
        outcome = ctx.sandbox.run(problem.prepare(trial.trial, trial.programs))
        evaluation = problem.interpret(trial.trial, trial.programs, outcome)
        yield TrialResult(trial.id, trial.cohort, evaluation)


def record(ctx: Context, run: Run, results: Sequence[TrialResult]) -> None:
    """Records the first result of each trial, and advances the cohorts."""
    ctx.share(("record", run.id), results, partial(_recorded, ctx), partial(enqueue, ctx))


def _recorded(ctx: Context, results: Sequence[TrialResult]) -> list[Advance | None]:
    with ctx.store.begin() as tx:
        recorded = tx.trials.record(results)
        if recorded is None:
            return [None for _ in results]
        run, cohorts = recorded
        advances = advance(ctx, tx, run, cohorts)
        if run.reason:
            tx.runs.explain(run.id, "")
    return [advances.pop(result.cohort, None) for result in results]
