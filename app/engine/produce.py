"""Produce: plan as many cohorts as the run's budget and back-pressure allow."""

from collections.abc import Sequence
from random import Random

from app.domain.events import (
    Broken,
    EventKind,
    Finished,
    Improved,
    Moved,
    Noticed,
    stalled_for,
)
from app.domain.run import Run, RunState
from app.domain.search.archive import IslandView
from app.domain.search.back_pressure import plannable
from app.domain.search.budget import overtime, spent
from app.domain.search.strategy import Strategy
from app.engine.admission import Admission
from app.engine.attempt import stop
from app.engine.back_pressure import pressure, resized
from app.engine.budget import account, affordable
from app.engine.context import Context
from app.engine.lifecycle import cut_unsettled
from app.engine.regrid import regrid
from app.ports.ledger import Transaction
from app.ports.protocols import Misconfigured
from app.ports.records import Backlog, Plan


def produce(ctx: Context, run_id: int) -> None:
    """Plans what there is room for, or ends the run when there is nothing left to do.

    Harmless to call at any time, from any number of workers: one plans, the others return.
    """
    try:
        with ctx.work(run_id), ctx.store.begin() as tx:
            if not tx.runs.lock_planning(run_id):
                return
            run = tx.runs.get(run_id)
            if run.state is not RunState.RUNNING:
                return
            late = overtime(run.budget, run.elapsed_seconds) and tx.cohorts.unsettled(run.id)
            planned = [] if late else _plan(ctx, tx, run)
    except Misconfigured as error:
        stop(ctx, run_id, RunState.PAUSED, str(error))
        return
    if late:
        cut_unsettled(ctx, run_id, f"budget of {run.budget.wall_seconds:g} s spent")
        ctx.executor.submit("produce", [run_id])
    if planned:
        ctx.executor.submit("generate", planned, together=run.limits.generate_batch)


def _plan(ctx: Context, tx: Transaction, run: Run) -> list[int]:
    backlog = tx.proposals.backlog(run.id)
    if backlog.founding:
        return []
    if overtime(run.budget, run.elapsed_seconds):
        _finish(tx, run, spent(run.budget, account(run)))
        return []
    islands = tx.archive.islands(run.id)
    if not any(island.size for island in islands):
        _fail_unfounded(tx, run)
        return []
    if any(axis.provisional for axis in run.axes):
        run = regrid(ctx, tx, run)
    strategy = ctx.strategy(run)
    reason = spent(run.budget, account(run)) or _stalled(tx, run, backlog)
    plans = [] if reason else _plans(tx, run, strategy, backlog, islands)
    if plans:
        fits = affordable(ctx, tx, run, plans)
        plans, reason = plans[: fits.cohorts], fits.reason
    if not plans:
        if reason and not backlog.unsettled:
            _finish(tx, run, reason)
        return []
    for ahead in range(len(plans)):
        if strategy.upkeep.due(run.cohorts + ahead):
            _upkeep(tx, run, strategy, run.rng(run.cohorts + ahead, "upkeep"))
    return tx.cohorts.add(run.id, plans, redeliver_seconds=ctx.pace.redeliver_seconds)


def _plans(
    tx: Transaction,
    run: Run,
    strategy: Strategy,
    backlog: Backlog,
    islands: Sequence[IslandView],
) -> list[Plan]:
    """Returns cohorts for the room there is, spread over the islands in turn.

    Of a barrier run, over those that are idle.
    """
    count = _room(tx, run, strategy, backlog, islands)
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


def _room(
    tx: Transaction,
    run: Run,
    strategy: Strategy,
    backlog: Backlog,
    islands: Sequence[IslandView],
) -> int:
    """Returns how many cohorts there is room for beside what waits and what is under test."""
    found = pressure(tx, run, backlog)
    run = resized(tx, run, found, least=strategy.cohort_size)
    free = plannable(
        run.limits, found.caps, generating=backlog.generating, evaluating=backlog.evaluating
    )
    count = free // strategy.cohort_size
    if strategy.barrier:
        count = min(count, sum(1 for island in islands if island.index not in backlog.islands))
    return count


def _stalled(tx: Transaction, run: Run, backlog: Backlog) -> str:
    """Returns why a run that is good enough, or without improvement, plans no more; else ""."""
    search = run.rules.search
    enough, patience = search.stop_fitness, search.stop_patience
    if enough is not None:
        best = tx.history.best_quality(run.id)
        if best is not None and best.whole and best.fitness >= enough:
            return f"fitness {best.fitness:.6g} is at least {enough:g}, as search.stop_fitness asks"
    if patience is None:
        return ""
    events = tx.events.read(run.id, kinds=(EventKind.IMPROVED,))
    improvements = [event.fact for event in events if isinstance(event.fact, Improved)]
    settled = run.proposals - backlog.unsettled
    if stalled_for(improvements, settled, search.stop_threshold) < patience:
        return ""
    return f"no improvement in {patience} proposals"


def _finish(tx: Transaction, run: Run, reason: str) -> None:
    if tx.runs.set_state(run.id, (RunState.RUNNING,), RunState.FINISHED, reason):
        tx.events.emit(run.id, Finished(proposals=run.proposals, reason=reason))


def _fail_unfounded(tx: Transaction, run: Run) -> None:
    failed = [one for one in tx.history.settled(run.id, limit=20) if one.failure is not None]
    told = "; ".join(
        f"{one.failure.kind}: {one.failure.detail.strip()[:500]}" for one in failed if one.failure
    )
    reason = (
        f"every seed of {run.problem_name!r} failed ({told}); "
        f"`evoq check` shows what the evaluator says of them"
        if failed
        else f"the seeds of {run.problem_name!r} were cut before they were measured: start anew"
    )
    noticed = tx.events.read(run.id, limit=5, kinds=(EventKind.NOTICED,))
    texts = (event.fact.text for event in noticed if isinstance(event.fact, Noticed))
    reason = " ".join([reason, *texts])
    if tx.runs.set_state(run.id, (RunState.RUNNING,), RunState.FAILED, reason):
        tx.events.emit(run.id, Broken(reason=reason))


def _upkeep(tx: Transaction, run: Run, strategy: Strategy, rng: Random) -> None:
    islands = tx.archive.islands(run.id, lock=True)
    admission = Admission(tx, run, strategy, islands)
    for move in strategy.upkeep.moves(islands, rng):
        if move.reset:
            admission.clear(move.target, reset=True)
        elite = admission.offer(move.elite, move.target, admission.epoch(move.target))
        if elite is not None:
            tx.events.emit(
                run.id,
                Moved(
                    program=elite.program,
                    fitness=elite.fitness,
                    source=move.source,
                    island=move.target,
                    cell=elite.cell,
                ),
            )
