"""Evaluate: trials are run in the sandbox, and their cohorts take the next step."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from app.domain.events import Noticed
from app.domain.problem import EvaluatorBroken
from app.domain.prompting.judging import STAGE
from app.domain.run import Run
from app.domain.search.cohort import TrialId
from app.engine.advance import Advance, advance
from app.engine.context import Context
from app.engine.enqueue import ring
from app.engine.faults import broken, evaluator_broken
from app.engine.modes import comparable, compared
from app.engine.sharing import taken
from app.ports.ledger import Exhausted
from app.ports.protocols import Unavailable
from app.ports.records import LeasedTrial, TrialResult


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a trial.

    Attributes:
      notice: What a person should be told; "" for nothing.
    """

    measured: TrialResult
    notice: str = ""


def evaluate(ctx: Context, *trial_ids: TrialId) -> None:
    """Runs trials of one run, one after the other, and records them together.

    Idempotent: the first result recorded wins.

    Raises:
      Unavailable: The sandbox or the ledger could not be reached; what had been measured is
        recorded, and the leases of the rest have been given back.
    """
    try:
        found = ctx.share("lease trials", trial_ids, partial(_lease, ctx))
    except Exhausted as error:
        broken(ctx, "trial", error)
        return
    mine = taken(found, trial_ids)
    if not mine:
        return
    run, leased = mine[0][0], [one for _, one in mine]
    opinions = [one.id for one in leased if one.trial.stage == STAGE]
    if opinions:  # `reap` rings without looking
        with ctx.store.begin() as tx:
            tx.leases.release([], opinions, ctx.pace.redeliver_seconds)
        ctx.executor.submit("judge", opinions)
    with ctx.work(run.id):
        _test(ctx, run, [one for one in leased if one.trial.stage != STAGE])


def _lease(ctx: Context, trial_ids: Sequence[TrialId]) -> dict[TrialId, tuple[Run, LeasedTrial]]:
    with ctx.store.begin() as tx:
        leased = tx.trials.claim(trial_ids, ctx.pace.lease_seconds, attempts=ctx.pace.attempts)
    return {one.id: (run, one) for run, one in leased}


def _test(ctx: Context, run: Run, leased: Sequence[LeasedTrial]) -> None:
    """Measures trials until one cannot be; records what was measured, whatever came then."""
    measured: list[Result] = []
    fault: Unavailable | EvaluatorBroken | None = None
    with ExitStack() as kept:
        for one in leased:
            kept.enter_context(ctx.keep("trial", one.id))
        for one in leased:
            try:
                measured.append(_measured(ctx, run, one))
            except (Unavailable, EvaluatorBroken) as error:
                fault = error
                break
        if measured:
            record(ctx, run, measured)
    if fault is None:
        return
    left = [one.id for one in leased[len(measured) :]]
    if isinstance(fault, EvaluatorBroken):
        evaluator_broken(ctx, run, left, fault)
        return
    with ctx.store.begin() as tx:
        tx.leases.release([], left, ctx.pace.retry_seconds)
        tx.runs.explain(run.id, f"waiting: {fault}")
    raise fault


def _measured(ctx: Context, run: Run, leased: LeasedTrial) -> Result:
    """Runs one trial."""
    trial, programs = leased.trial, leased.programs
    problem = ctx.problem(run.problem)
    job = problem.prepare(trial, programs)
    evaluation = problem.interpret(trial, programs, ctx.sandbox.run(job))
    notice = ""
    if comparable(run, problem, trial, job):
        notice = compared(ctx.sandbox, problem, trial, programs, evaluation)
    return Result(TrialResult(leased.id, leased.cohort, evaluation), notice)


def record(ctx: Context, run: Run, results: Sequence[Result]) -> None:
    """Records results that are their trials' first, and lets the cohorts take the next step."""
    found = ctx.share(("record", run.id), results, partial(_record, ctx))
    for now, came in taken(found, [run.id]):
        ring(ctx, now, came)


def _record(ctx: Context, results: Sequence[Result]) -> dict[int, tuple[Run, Advance]]:
    with ctx.store.begin() as tx:
        found = tx.trials.record([one.measured for one in results])
        if found is None:
            return {}
        run, cohorts = found
        for notice in (one.notice for one in results if one.notice):
            tx.events.emit(run.id, Noticed(text=notice))
        came = advance(ctx, tx, run, cohorts)
        if run.reason:
            tx.runs.explain(run.id, "")
    return {run.id: (run, came)}
