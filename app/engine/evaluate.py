"""Evaluate: trials are run in the sandbox, and their cohorts take the next step."""

from collections.abc import Sequence
from contextlib import ExitStack

from app.domain.cohort import TrialId
from app.domain.events import EventKind
from app.domain.judging import STAGE
from app.domain.problem import EvaluatorBroken
from app.domain.run import Run
from app.engine.advance import advance
from app.engine.context import Context
from app.engine.faults import broken, evaluator_broken
from app.engine.modes import comparable, compared
from app.engine.ring import ring
from app.entries import Leased, Measured
from app.ledger import Exhausted
from app.ports import Unavailable


def evaluate(ctx: Context, *trial_ids: TrialId) -> None:
    """Runs trials of one run, one after the other, and records them together.

    Idempotent: the first result recorded wins.

    Raises:
      Unavailable: The sandbox or the ledger could not be reached; what had been measured is
        recorded, and the leases of the rest have been given back.
    """
    try:
        with ctx.store.begin() as tx:
            found = tx.claim_trials(trial_ids, ctx.pace.lease_seconds, attempts=ctx.pace.attempts)
    except Exhausted as error:
        broken(ctx, "trial", error)
        return
    if found is None:
        return
    run, leased = found
    opinions = [one.id for one in leased if one.trial.stage == STAGE]
    if opinions:  # `reap` rings without looking
        with ctx.store.begin() as tx:
            tx.release([], opinions, ctx.pace.ring_again_seconds)
        ctx.executor.submit("judge", opinions)
    with ctx.work(run.id):
        _test(ctx, run, [one for one in leased if one.trial.stage != STAGE])


def _test(ctx: Context, run: Run, leased: Sequence[Leased]) -> None:
    """Measures trials until one cannot be; records what was measured, whatever came then."""
    measured: list[Measured] = []
    notices: list[str] = []
    fault: Unavailable | EvaluatorBroken | None = None
    with ExitStack() as kept:
        for one in leased:
            kept.enter_context(ctx.keep("trial", one.id))
        for one in leased:
            try:
                evaluation, notice = _measured(ctx, run, one)
            except (Unavailable, EvaluatorBroken) as error:
                fault = error
                break
            measured.append(evaluation)
            notices += [notice] if notice else []
    if measured:
        recorded(ctx, measured, notices)
    if fault is None:
        return
    left = [one.id for one in leased[len(measured) :]]
    if isinstance(fault, EvaluatorBroken):
        evaluator_broken(ctx, run, left, fault)
        return
    with ctx.store.begin() as tx:
        tx.release([], left, ctx.pace.retry_seconds)
        tx.explain(run.id, f"waiting: {fault}")
    raise fault


def _measured(ctx: Context, run: Run, leased: Leased) -> tuple[Measured, str]:
    """Runs one trial; returns what came of it, and what a person should be told, or ""."""
    trial, programs = leased.trial, leased.programs
    problem = ctx.problem(run.problem)
    job = problem.prepare(trial, programs)
    evaluation = problem.interpret(trial, programs, ctx.sandbox.run(job))
    notice = ""
    if comparable(run, problem, trial, job):
        notice = compared(ctx.sandbox, problem, trial, programs, evaluation)
    return Measured(leased.id, leased.cohort, evaluation), notice


def recorded(ctx: Context, measured: Sequence[Measured], notices: Sequence[str] = ()) -> None:
    """Records evaluations that are their trials' first, and lets the cohorts take the next step."""
    with ctx.store.begin() as tx:
        found = tx.record(measured)
        if found is None:
            return
        run, cohorts = found
        for notice in notices:
            tx.emit(run.id, EventKind.NOTICED, {"text": notice})
        came = advance(ctx, tx, run, cohorts)
        if run.reason:
            tx.explain(run.id, "")
    ring(ctx, run, came)
