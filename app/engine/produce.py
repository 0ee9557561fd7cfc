"""Produce: plan as many cohorts as the run's budget and back-pressure allow."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from app.domain.digits import number_texts
from app.domain.events import Broken, EventKind, Finished, Improved, Moved, Noticed, stalled_for
from app.domain.run import Run, RunState
from app.domain.search.archive import CellKey
from app.domain.search.budget import overtime, spent
from app.domain.search.cohort import CohortId
from app.domain.search.fleets import Room
from app.domain.search.form_mix import draw_form
from app.domain.search.model_mix import WINDOW
from app.domain.search.nested import LEAST, slices
from app.domain.search.strategy import Barrier, Strategy
from app.engine.admission import Admission
from app.engine.advance import advance
from app.engine.back_pressure import most_of, pressure, resized, shared_capacity, unplaced
from app.engine.branches import end_idle
from app.engine.budget import account, affordable
from app.engine.context import Context
from app.engine.enqueue import enqueue, enqueue_trials
from app.engine.fleets import fleet_draw, plan_room
from app.engine.inside import give_back, owes, stop_with_the_run_around, wanted_state
from app.engine.lease import explain, stop
from app.engine.lifecycle import cut_unsettled
from app.engine.quotas import project_room
from app.engine.regrid import regrid
from app.engine.validation import validate
from app.ports.cohorts import Plan
from app.ports.ledger import Transaction
from app.ports.proposals import Backlog
from app.ports.protocols import Misconfigured, Unavailable
from app.ports.trials import WaitingTrial


def produce(ctx: Context, run_id: int) -> None:
    """Plans what there is room for, or ends the run when there is nothing left to do.

    Harmless to call at any time, from any number of workers: one worker plans, the others return.
    """
    try:
        with ctx.process.count_work(run_id), ctx.tracing.planning() as trace:
            with ctx.store.begin() as tx:
                if not tx.runs.lock_planning(run_id):
                    return
                backlog = tx.proposals.backlog(run_id)
                # The run is read after the backlog, because a settlement may give budget back.
                run = tx.runs.get(run_id)
                if run.state is not RunState.RUNNING:
                    return
                if run.plans_nothing:
                    end_idle(tx, run)
                    return
                due, owing = wanted_state(tx, run), owes(tx, run)
                in_flight = backlog.generating + backlog.evaluating
                over = in_flight and overtime(run.budget, run.elapsed_seconds)
                late: list[CohortId] = []
                planned = _Planned()
                if not over:
                    strategy = ctx.strategy(run)
                    if strategy.deadline_seconds is not None:
                        late = tx.cohorts.late(run.id, strategy.deadline_seconds)
                    if not (late or owing) and due is RunState.RUNNING:
                        planned = _plan(ctx, tx, run, strategy, backlog)
            trace(run, list(planned.proposals))
    except Misconfigured as error:
        stop(ctx, run_id, RunState.PAUSED, str(error))
        return
    except Unavailable as error:
        # A database on a full disk still has room for this transaction.
        with ctx.store.begin() as tx:
            explain(tx, run_id, error)
        raise
    if due is not RunState.RUNNING:
        stop_with_the_run_around(ctx, run_id, due)
        return
    for cohort in late:
        _judge_late(ctx, cohort)
    if over:
        cut_unsettled(ctx, run_id, f"budget of {run.budget.wall_seconds:g} s spent")
    if owing:
        give_back(ctx, run)
    if over or late or owing:
        ctx.executor.submit("produce", [run_id])
    ctx.enqueue("generate", planned.proposals, together=run.limits.generate_batch)
    enqueue_trials(ctx, planned.trials)
    if planned.ended and run.parent is not None:
        fleet = run.rules.fleets.generation(0, lambda: run.rng(-1, "fleet"))
        ctx.executor.submit("generate", [run.parent], fleet=fleet)


@dataclass(frozen=True, slots=True)
class _Planned:
    """What one planning added: proposals to generate, or trials of the validation.

    Attributes:
      proposals: With the labels of their fleets.
      ended: Whether the run has ended instead.
    """

    proposals: Mapping[int, str] = field(default_factory=dict)
    trials: Sequence[WaitingTrial] = ()
    ended: bool = False


def _judge_late(ctx: Context, cohort_id: CohortId) -> None:
    """Lets a cohort whose deadline has passed be judged with what was measured."""
    with ctx.store.begin() as tx:
        run, cohort = tx.cohorts.lock(cohort_id)
        if run.state.final:
            return
        advances = advance(ctx, tx, run, ctx.strategy(run), [replace(cohort, late=True)])
    enqueue(ctx, list(advances.values()))


def _plan(
    ctx: Context, tx: Transaction, run: Run, strategy: Strategy, backlog: Backlog
) -> _Planned:
    if backlog.seeding:
        return _Planned()
    if overtime(run.budget, run.elapsed_seconds):
        return _finish(ctx, tx, run, spent(run.budget, account(run)))
    islands = tx.archive.islands(run.id)
    if not any(island.size for island in islands):
        _fail_without_seeds(tx, run)
        return _Planned(ended=True)
    if any(axis.provisional for axis in run.axes):
        run, strategy = regrid(ctx, tx, run, strategy)
    reason = spent(run.budget, account(run)) or _end_reason(tx, run, backlog)
    sizes = [0] if reason else [strategy.size(island) for island in islands]
    if not reason and not any(sizes):
        reason = "every island is finished"
    limits = run.limits
    plans: list[Plan] = []
    if not reason:
        run, plans = _plans(ctx, tx, run, strategy, backlog, sizes)
    planned = _added(ctx, tx, run, strategy, backlog, plans, reason)
    # This locks the run, so it comes after all that locks islands and programs.
    if run.limits != limits:
        tx.runs.set_limits(run.id, run.limits)
    return planned


def _added(
    ctx: Context,
    tx: Transaction,
    run: Run,
    strategy: Strategy,
    backlog: Backlog,
    plans: Sequence[Plan],
    reason: str,
) -> _Planned:
    """Adds the plans that the budget has room for; without any, the run may have ended.

    Args:
      ctx: The world.
      tx: The transaction of the planning.
      run: The run.
      strategy: The run's.
      backlog: Its unsettled proposals.
      plans: The next cohorts.
      reason: Why the run plans no more; "" where it does.
    """
    if plans:
        fits = affordable(ctx, tx, run, plans)
        plans, reason = plans[: fits.cohorts], fits.reason
    nested = run.rules.nested is not None
    if not plans and not reason and nested and run.budget.proposals - run.proposals < LEAST:
        reason = f"budget of {run.budget.proposals} proposals spent but one, too few for a run"
    if not plans:
        ended = reason and not backlog.unsettled
        return _finish(ctx, tx, run, reason) if ended else _Planned()
    for ahead in range(len(plans)):
        if strategy.upkeep.due(run.cohorts + ahead):
            _keep_up(tx, run, strategy, run.rng(run.cohorts + ahead, "upkeep"))
            # One upkeep between two generations is enough.
            if strategy.barrier is Barrier.RUN:
                break
    plans = [replace(plan, together=_together(ctx, run, plan)) for plan in plans]
    added = tx.cohorts.add(run.id, plans, redeliver_seconds=ctx.pace.redeliver_seconds)
    return _Planned(proposals=added)


def _plans(
    ctx: Context,
    tx: Transaction,
    run: Run,
    strategy: Strategy,
    backlog: Backlog,
    sizes: Sequence[int],
) -> tuple[Run, list[Plan]]:
    """Returns the run with its present limits, and the next cohorts, an island after the other.

    They are planned until the limits or the budget are met.  A cohort that is larger than what the
    limits leave is planned all the same where nothing of the run is in flight, and, with a barrier,
    where its island is idle and the limits are measured: it would never be planned otherwise.  The
    last cohort is cut to what the budget still has.
    """
    caps, first, left = run.rules.queue, run.ordinals, run.budget.proposals - run.proposals
    largest = max(1, *sizes) * run.rules.search.samples
    run, room, more = _measured(ctx, tx, run, strategy, backlog, sizes)
    allowed = project_room(tx.projects, run, least=largest)
    held = allowed < 1
    fleet_of, fleets = fleet_draw(tx, run, room, least=largest), run.rules.fleets
    measured = caps.generating is None and caps.evaluating is None
    plans: list[Plan] = []
    nested = run.rules.nested
    full = False
    draw = _operator_draw(ctx, tx, _weighted_by_cohort(ctx, run, sizes))
    # Islands in a row whose fleets have no room.
    skipped = 0
    for island in _turns(run, strategy.barrier, backlog, sizes):
        operator = strategy.operator or draw(first)
        size = min(_size(ctx, run, operator, sizes[island]), left)
        reserved: tuple[int, ...] = ()
        if nested is not None and ctx.operators[operator].searches:
            reserved = slices(left, size, nested.proposals)
            size = len(reserved)
        alone = not plans and not backlog.unsettled
        idle = strategy.barrier is not Barrier.NONE and measured
        full = size > room.total and not alone and not idle
        if size < 1 or size > allowed or full:
            break
        gpu, cpu = fleet_of(island, first), fleets.trial(island)
        if size > room.of(gpu, cpu) and not alone and not idle:
            skipped += 1
            # A fleet that was drawn is waited for: the weights of models are shares of proposals.
            if skipped < run.islands and (fleets.islands or len(fleets.evaluating) > 1):
                continue
            break
        skipped = 0
        ordinals = tuple(range(first, first + size))
        plan = Plan(island, operator, ordinals, reserved=reserved, fleet=gpu)
        plans.append(plan)
        first += size
        left -= plan.proposals
        allowed -= size
        room = room.without(gpu, cpu, size)
    limits = replace(run.limits, unplaced=more if full else 0, held=held)
    return replace(run, limits=limits), plans


def _measured(
    ctx: Context,
    tx: Transaction,
    run: Run,
    strategy: Strategy,
    backlog: Backlog,
    sizes: Sequence[int],
) -> tuple[Run, Room, int]:
    """Returns the run with its present limits, what may be planned, and what more places would let.

    See `app.engine.back_pressure.unplaced` for the latter.
    """
    measures = pressure(tx.proposals, run, backlog)
    names = [strategy.operator] if strategy.operator else run.operators
    asks = any(ctx.operators[name].asks_model for name in names)
    capacity = shared_capacity(tx, run)
    most = most_of(run, backlog, measures.flow, capacity, asks=asks)
    # The flow of nested runs is not measured, so as many are planned as there is room for.
    if run.rules.nested is not None:
        measures = replace(measures, flow=None)
    run = resized(run, measures, capacity, most=most, least=max(1, *sizes))
    largest = max(1, *sizes) * run.rules.search.samples
    room = plan_room(tx.fleets, run, backlog, measures.caps, most=most, least=largest)
    left = run.budget.proposals - run.proposals
    return run, room, unplaced(run, backlog, measures, capacity, free=room.total, left=left)


def _size(ctx: Context, run: Run, operator: str, size: int) -> int:
    """Returns the size of a cohort: several samples of one prompt take the place of one child."""
    return run.rules.search.samples if size == 1 and ctx.operators[operator].form else size


def _weighted_by_cohort(ctx: Context, run: Run, sizes: Sequence[int]) -> Run:
    """Returns the run with the weights of cohorts, where those of some operators are larger.

    The weights of a run are shares of its proposals.
    """
    if run.rules.search.samples == 1 or max(sizes, default=1) > 1:
        return run
    weights = {name: share / _size(ctx, run, name, 1) for name, share in run.operators.items()}
    return replace(run, operators=weights)


def _together(ctx: Context, run: Run, plan: Plan) -> bool:
    operator = ctx.operators[plan.operator]
    return operator.together or (operator.form and run.rules.search.samples > 1)


def _operator_draw(ctx: Context, tx: Transaction, run: Run) -> Callable[[int], str]:
    """Returns the function that draws a cohort's operator, given the ordinal of its first proposal.

    The ledger is read once a planning, where the forms of the run are learnt.
    """
    if not run.rules.search.learn_forms:
        return run.draw_operator
    forms = [name for name in run.operators if ctx.operators[name].form]
    if len(forms) < 2:
        return run.draw_operator
    written = tx.completions.written_by_operator(run.id, WINDOW)

    def draw(ordinal: int) -> str:
        first, rng = run.draw_operator(ordinal), run.rng(ordinal, "form")
        return draw_form(run.operators, forms, written, first, rng)

    return draw


def _turns(run: Run, barrier: Barrier, backlog: Backlog, sizes: Sequence[int]) -> Iterable[int]:
    """Returns the islands whose next cohort may be planned, in turn; without end if no barrier."""
    if barrier is Barrier.RUN and backlog.islands:
        return ()
    turn = run.cohorts % run.islands
    waiting = [
        island
        for island in (*range(turn, run.islands), *range(turn))
        if sizes[island] and not (barrier is Barrier.ISLAND and island in backlog.islands)
    ]
    return waiting if barrier is not Barrier.NONE else itertools.cycle(waiting)


def _end_reason(tx: Transaction, run: Run, backlog: Backlog) -> str:
    """Returns why a run that is good enough, or without improvement, ends; "" where it goes on."""
    search = run.rules.search
    enough, patience, admitted = search.stop_fitness, search.stop_patience, search.stop_admitted
    if enough is not None:
        best = tx.history.best_quality(run)
        if best is not None and best.whole and best.fitness >= enough:
            what = "fitness" if run.proposals else "a seed's fitness"
            reached, asked = number_texts([best.fitness, enough])
            return f"{what} {reached} is at least {asked}, as search.stop_fitness asks"
    if admitted is not None and tx.history.admitted(run.id, admitted) >= admitted:
        return f"{admitted} programs were admitted, as search.stop_admitted asks"
    if patience is None:
        return ""
    events = tx.events.read(run.id, kinds=(EventKind.IMPROVED, EventKind.CROWNED))
    improvements = [event.fact for event in events if isinstance(event.fact, Improved)]
    settled = run.proposals - backlog.unspent
    if stalled_for(improvements, settled, search.stop_threshold) < patience:
        return ""
    return f"no improvement in {patience} proposals, as search.stop_patience asks"


def _finish(ctx: Context, tx: Transaction, run: Run, reason: str) -> _Planned:
    """Finishes a run, once the runs inside have ended and its best programs are validated."""
    if run.rules.nested is not None and tx.runs.inside(run.id, reserving=True, limit=1):
        return _Planned()
    trials = validate(ctx, tx, run)
    if trials is not None:
        return _Planned(trials=trials)
    if tx.runs.set_state(run.id, (RunState.RUNNING,), RunState.FINISHED, reason):
        tx.events.emit(run.id, Finished(proposals=run.proposals, reason=reason))
    return _Planned(ended=True)


def _fail_without_seeds(tx: Transaction, run: Run) -> None:
    settled = tx.history.settled(run.id, limit=20)
    failed = [proposal.failure for proposal in settled if proposal.failure is not None]
    failures = "; ".join(f"{one.kind}: {one.shown.strip()[:500]}" for one in failed)
    reason = (
        f"every seed of {run.problem_name!r} failed ({failures}); "
        f"`evoq check` shows what the evaluator says of them"
        if failed
        else f"the seeds of {run.problem_name!r} were cut before they were measured: start anew"
    )
    noticed = tx.events.read(run.id, limit=5, kinds=(EventKind.NOTICED,))
    texts = (event.fact.text for event in noticed if isinstance(event.fact, Noticed))
    reason = " ".join([reason, *texts])
    if tx.runs.set_state(run.id, (RunState.RUNNING,), RunState.FAILED, reason):
        tx.events.emit(run.id, Broken(reason=reason))


def _keep_up(tx: Transaction, run: Run, strategy: Strategy, rng: Random) -> None:
    islands = tx.archive.islands(run.id, lock=True)
    admission = Admission(tx, run, strategy, islands)
    moves = strategy.upkeep.moves(islands, rng)
    wanted: dict[int, set[CellKey]] = {}
    for move in moves:
        wanted.setdefault(move.target, set()).add(move.elite.cell)
    admission.read(wanted)
    for move in moves:
        if move.reset:
            admission.clear(move.target, reset=True)
        elite = admission.offer(move.elite, move.target, admission.epoch(move.target)).elite
        if elite is not None:
            moved = Moved(
                program=elite.program,
                fitness=elite.fitness,
                source=move.source,
                island=move.target,
                cell=elite.cell,
                reset=move.reset,
            )
            tx.events.emit(run.id, moved)
