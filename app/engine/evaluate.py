"""Evaluate: one trial is run in the sandbox, and its cohort takes the next step."""

from typing import TypeAlias

from app.domain.cohort import CohortId, TrialId
from app.domain.evaluation import Evaluation, Trial
from app.domain.events import EventKind
from app.domain.judging import STAGE
from app.domain.problem import EvaluatorBroken
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.engine.advance import advance
from app.engine.context import Context
from app.engine.faults import broken, evaluator_broken
from app.engine.modes import comparable, compared
from app.engine.ring import ring
from app.ledger import Exhausted
from app.ports import Unavailable

_Leased: TypeAlias = tuple[Run, CohortId, Trial, dict[ProgramId, Program]]


def evaluate(ctx: Context, trial_id: TrialId) -> None:
    """Runs one trial: idempotent, and the first result recorded wins.

    Raises:
      Unavailable: The sandbox or the ledger could not be reached; the lease has been given back.
    """
    try:
        with ctx.store.begin() as tx:
            found = tx.claim_trial(trial_id, ctx.pace.lease_seconds, attempts=ctx.pace.attempts)
    except Exhausted as error:
        broken(ctx, "trial", trial_id, error)
        return
    if found is None:
        return
    run, _, trial, _ = found
    if trial.stage == STAGE:  # `reap` rings without looking
        with ctx.store.begin() as tx:
            tx.release([], [trial_id], ctx.pace.ring_again_seconds)
        ctx.executor.submit("judge", [trial_id])
        return
    with ctx.work(run.id):
        _test(ctx, trial_id, found)


def _test(ctx: Context, trial_id: TrialId, found: _Leased) -> None:
    run, cohort_id, trial, programs = found
    problem = ctx.problem(run.problem)
    try:
        with ctx.keep("trial", trial_id):
            job = problem.prepare(trial, programs)
            evaluation = problem.interpret(trial, programs, ctx.sandbox.run(job))
            notice = ""
            if comparable(run, problem, trial, job):
                notice = compared(ctx.sandbox, problem, trial, programs, evaluation)
    except Unavailable as error:
        with ctx.store.begin() as tx:
            tx.release([], [trial_id], ctx.pace.retry_seconds)
            tx.explain(run.id, f"waiting: {error}")
        raise
    except EvaluatorBroken as error:
        evaluator_broken(ctx, run, trial_id, error)
        return
    recorded(ctx, cohort_id, trial_id, evaluation, notice)


def recorded(
    ctx: Context, cohort_id: CohortId, trial_id: TrialId, evaluation: Evaluation, notice: str = ""
) -> None:
    """Records a trial's evaluation, if it is the first, and lets the cohort take its next step."""
    with ctx.store.begin() as tx:
        first = tx.record(cohort_id, trial_id, evaluation)
        if first is None:
            return
        run, cohort = first
        if notice:
            tx.emit(run.id, EventKind.NOTICED, {"text": notice})
        came = advance(ctx, tx, run, cohort)
        if run.reason:
            tx.explain(run.id, "")
    ring(ctx, run, came)
