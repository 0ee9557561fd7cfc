"""Produce: plan as many cohorts as the run's budget and back-pressure allow."""

from random import Random

from app.domain.events import EventKind, stalled_for
from app.domain.run import Run, RunState
from app.domain.strategy import Strategy
from app.engine.admit import place
from app.engine.context import Context
from app.engine.regrid import regrid
from app.entries import Backlog, Plan
from app.ledger import Transaction


def produce(ctx: Context, run_id: int) -> None:
    """Plans what there is room for, or ends the run when there is nothing left to do.

    Harmless to call at any time, from any number of workers: one plans, the others return.
    """
    with ctx.store.begin() as tx:
        if not tx.exclusive(run_id):
            return
        run = tx.run(run_id)
        if run.state is not RunState.RUNNING:
            return
        planned = _plan(ctx, tx, run)
    if planned:
        ctx.executor.submit("generate", planned)


def _plan(ctx: Context, tx: Transaction, run: Run) -> list[int]:
    backlog = tx.backlog(run.id)
    if backlog.founding:
        return []
    islands = tx.islands(run.id)
    if not any(island.size for island in islands):
        _fail_unfounded(tx, run)
        return []
    if any(axis.provisional for axis in run.axes):
        run = regrid(ctx, tx, run)
    strategy = ctx.strategy(run)
    left, reason = _left(tx, run, backlog)
    if left < strategy.cohort_size:
        if not backlog.unsettled and tx.set_state(
            run.id, (RunState.RUNNING,), RunState.FINISHED, reason
        ):
            tx.emit(run.id, EventKind.FINISHED, {"proposals": run.proposals, "reason": reason})
        return []
    room = min(left, run.limits.generating - backlog.generating)
    if backlog.evaluating >= run.limits.evaluating:
        room = 0
    count = room // strategy.cohort_size
    if strategy.barrier:
        count = min(count, sum(1 for island in islands if island.index not in backlog.islands))
    if count <= 0:
        return []
    for ahead in range(count):
        if strategy.upkeep.due(run.cohorts + ahead):
            _upkeep(tx, run, strategy, run.rng(run.cohorts + ahead, "upkeep"))
    plans = _plans(run, strategy, backlog, count)
    return tx.add_cohorts(run.id, plans, ring_again_seconds=ctx.pace.ring_again_seconds)


def _plans(run: Run, strategy: Strategy, backlog: Backlog, count: int) -> list[Plan]:
    """Returns `count` cohorts, spread over the islands in turn (of a barrier run: idle ones)."""
    idle = [n for n in range(run.islands) if not (strategy.barrier and n in backlog.islands)]
    plans = []
    for n in range(count):
        first = run.proposals + n * strategy.cohort_size
        plans.append(
            Plan(
                idle[(run.cohorts + n) % len(idle)] if not strategy.barrier else idle[n],
                strategy.operator or run.draw_operator(first),
                tuple(range(first, first + strategy.cohort_size)),
            )
        )
    return plans


def _left(tx: Transaction, run: Run, backlog: Backlog) -> tuple[int, str]:
    """Returns how many proposals may still be planned, and why none, if none."""
    budget, search = run.budget, run.settings["search"]
    left = budget.proposals - run.proposals
    if left <= 0:
        return 0, f"budget of {budget.proposals} proposals spent"
    if budget.wall_seconds is not None and run.elapsed_seconds >= budget.wall_seconds:
        return 0, f"budget of {budget.wall_seconds:g} s spent"
    if budget.tokens is not None and run.tokens >= budget.tokens:
        return 0, f"budget of {budget.tokens} tokens spent"
    patience = search["stop_patience"]
    if patience is not None:
        improvements = tx.events(run.id, kinds=(EventKind.IMPROVED,))
        settled = run.proposals - backlog.unsettled
        if stalled_for(improvements, settled, search["stop_threshold"]) >= patience:
            return 0, f"no improvement in {patience} proposals"
    return left, ""


def _fail_unfounded(tx: Transaction, run: Run) -> None:
    failed = [one for one in tx.settled(run.id, limit=20) if one.failure is not None]
    told = "; ".join(
        f"{one.failure.kind}: {one.failure.detail.strip()[:500]}" for one in failed if one.failure
    )
    reason = (
        f"every seed of {run.problem_name!r} failed ({told}); "
        f"`evoq check` shows what the evaluator says of them"
    )
    if tx.set_state(run.id, (RunState.RUNNING,), RunState.FAILED, reason):
        tx.emit(run.id, EventKind.BROKEN, {"reason": reason})


def _upkeep(tx: Transaction, run: Run, strategy: Strategy, rng: Random) -> None:
    islands = tx.islands(run.id, lock=True)
    for move in strategy.upkeep.moves(islands, rng):
        if move.reset:
            tx.clear_island(run.id, move.target, reset=True)
        target = tx.island(run.id, move.target, lock=True)
        elite = place(tx, run.id, target, strategy, move.elite)
        if elite is not None:
            tx.emit(
                run.id,
                EventKind.MOVED,
                {
                    "program": elite.program,
                    "fitness": elite.fitness,
                    "source": move.source,
                    "island": move.target,
                    "cell": list(elite.cell),
                },
            )
