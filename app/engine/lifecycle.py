"""Lifecycle: a run is started, paused, resumed, cancelled, and the runs inside it with it."""

from app.domain.events import Cancelled, Paused, Resumed
from app.domain.problem import Problem
from app.domain.run import Revision, Run, RunState
from app.domain.search.budget import Budget, spent
from app.domain.search.cohort import CutReason
from app.engine.advance import emit_cut
from app.engine.budget import account
from app.engine.context import Context
from app.engine.enqueue import redeliver
from app.engine.founding import found_run
from app.engine.inside import end_unwanted, reopen, revise_inside, stop_all, unended
from app.engine.lease import change_state
from app.ports.runs import NewRun


def start(ctx: Context, problem: Problem, new: NewRun) -> Run:
    """Creates a run and the cohort of the problem's seeds, and enqueues it.

    Raises:
      ValueError: The run's name is taken.
    """
    with ctx.store.begin() as tx:
        tx.problems.add(problem)
        tx.programs.put(problem.seeds)
        run, proposals = found_run(ctx, tx, problem, new, [seed.id for seed in problem.seeds])
    ctx.enqueue("generate", proposals)
    return run


def pause(ctx: Context, run: int, reason: str = "") -> bool:
    """Stops a run: no step begins, and steps in progress end.  False if it was not running."""
    with ctx.store.begin() as tx:
        stop_all(tx, run, RunState.PAUSED)
        return change_state(tx, run, RunState.PAUSED, Paused(reason=reason))


def resume(
    ctx: Context, run: int, budget: Budget | None = None, *, keep_leases: bool = False
) -> bool:
    """Lets a paused, failed, cancelled or interrupted run go on to its budget.

    Args:
      ctx: The world.
      run: Its id.
      budget: A new one; None keeps the old one.  A finished run goes on only with a larger one.
      keep_leases: Whether workers may have steps of the run in progress.

    Returns:
      Whether there is anything left to do.
    """
    before = (RunState.PAUSED, RunState.FAILED, RunState.CANCELLED, RunState.FINISHED)
    with ctx.store.begin() as tx:
        stored = tx.runs.get(run)
        reopened: list[int] = []
        if stored.state in before:
            # It locks proposals: before the run.
            tx.leases.forget_attempts(run, keep_leases=keep_leases)
            reopened = reopen(tx, run, keep_leases=keep_leases)
        if budget is not None:
            tx.runs.set_budget(run, budget)
            stored = tx.runs.get(run)
        if stored.state is RunState.FINISHED and spent(stored.budget, account(stored)):
            return False
        if tx.runs.set_state(run, before, RunState.RUNNING):
            tx.events.emit(run, Resumed(budget=stored.budget.proposals))
    for going in (run, *reopened):
        redeliver(ctx, going)
        ctx.executor.submit("produce", [going])
    return True


def change(ctx: Context, run: Run, revision: Revision) -> bool:
    """Gives a run that has begun other settings, which hold for steps that begin afterwards.

    Runs inside it get the values that they had from it.  Where the fleets change, steps that wait
    move to the new ones.

    Args:
      ctx: The world.
      run: As it was read when the revision was made.
      revision: The settings.

    Returns:
      False if the run was changed meanwhile: nothing is stored then.
    """
    with ctx.store.begin() as tx:
        if revision.fleets != run.rules.fleets:
            # It locks proposals and trials: before any run.
            for going in (run.id, *(one.id for one, _ in unended(tx, run.id))):
                tx.fleets.move(going, revision.fleets)
        # The runs inside are locked before the run itself.
        inside = revise_inside(tx, run, revision)
        if not tx.runs.revise(run, revision.settings, revision.operators):
            return False
        if revision.budget != run.budget:
            tx.runs.set_budget(run.id, revision.budget)
        for changed, changes in ((run.id, revision.changes), *inside):
            for fact in changes:
                tx.events.emit(changed, fact)
    return True


def cancel(ctx: Context, run: int, reason: str = "cancelled") -> bool:
    """Ends a run now; False if it had ended before.

    What is in flight is withdrawn: no step begins, those in progress stop, no result is recorded,
    and what was paid for is kept for a `resume`, which goes on with the whole rest of the budget.
    """
    with ctx.store.begin() as tx:
        stop_all(tx, run, RunState.CANCELLED)
        return change_state(tx, run, RunState.CANCELLED, Cancelled(reason=reason))


def cut_unsettled(ctx: Context, run: int, reason: str) -> None:
    """Cuts what is in flight, a cohort at a time; a step in progress finds it settled."""
    with ctx.store.begin() as tx:
        open_cohorts = tx.cohorts.unsettled(run)
    for cohort_id in open_cohorts:
        with ctx.store.begin() as tx:
            locked, cohort = tx.cohorts.lock(cohort_id)
            results = [
                emit_cut(tx.events, locked, cohort, member, CutReason.CANCELLED, reason)
                for member in cohort.members
                if not member.state.final
            ]
            tx.cohorts.enter([cohort], results)
            tx.leases.withdraw([cohort_id])
    end_unwanted(ctx, run)
