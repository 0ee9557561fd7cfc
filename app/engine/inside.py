"""Runs inside a run: begun for a proposal, ended with it, and their slice of the budget returned.

A run inside is a run of its own: it has its messages, its leases and its events, and any worker
goes on with it.  What binds it to the run around is one column, `runs.parent`, and what is set
aside for it, `proposals.reserved`.  Each step here may be repeated, and be lost: a run inside that
nobody wants any more is found by its own planning, what it left by that of the run around.
"""

from app.domain.evaluation import Failure, FailureKind
from app.domain.events import Cancelled, Changed, Paused, Resumed
from app.domain.operator import Child, Draft, Offspring
from app.domain.run import Revision, Run, RunState
from app.domain.search.archive import scaled
from app.domain.search.back_pressure import SMALL, InFlightLimits
from app.domain.search.cohort import ProposalId, State
from app.domain.search.nested import slice_of
from app.engine.context import Context
from app.engine.founding import found_run
from app.engine.lease import change_state, stop
from app.ports.ledger import Transaction
from app.ports.proposals import LeasedProposals
from app.ports.protocols import Misconfigured, Store
from app.ports.runs import InsideRun, NewRun

WITH_THE_RUN_AROUND = "with the run around it"
"""The reason of a run inside that was paused or cancelled because the run around was."""

_OF_THE_RUN_AROUND = (
    *("search.operators", "search.stop_patience", "search.stop_admitted", "search.validate_best"),
)
"""Settings that runs inside a run do not have from it; see `app.config.nested`."""

_STOPPED = (RunState.PAUSED, RunState.FAILED, RunState.CANCELLED)


def search_inside(ctx: Context, run: Run, leased: LeasedProposals, draft: Draft) -> Child | None:
    """Returns the child that the run inside a leased proposal found; begins that run.

    Returns:
      None while that run goes on, whose end enqueues the proposal again; the lease is given back.

    Raises:
      Misconfigured: The recipe of runs inside is not installed here.
    """
    proposals: dict[ProposalId, str] = {}
    inside, child = None, None
    with ctx.store.begin() as tx:
        _, planned = tx.cohorts.lock_planned([leased.id])
        if not planned:
            return None
        inside = tx.runs.searching(leased.id)
        if inside is None:
            proposals = _begin(ctx, tx, run, leased, draft)
        elif inside.state.final:
            child = _child(tx, inside)
        if child is None:
            tx.leases.release([leased.id], [], ctx.pace.redeliver_seconds)
    if proposals:
        ctx.enqueue("generate", proposals)
    elif inside is not None and child is None:
        _keep_going(ctx, run, inside)
    return child


def _begin(
    ctx: Context, tx: Transaction, run: Run, leased: LeasedProposals, draft: Draft
) -> dict[ProposalId, str]:
    """Begins the run inside a proposal, unless the run around has ended meanwhile."""
    rules, problem = run.rules.nested, ctx.problem(run.problem)
    [member] = leased.cohort.members
    if rules is None or rules.recipe is None:
        named = rules.strategy if rules else "nested.strategy"
        raise Misconfigured(
            f"the recipe {named!r} of the runs inside {run.name!r} is not installed here: install "
            f"the package that provides it, wherever workers run"
        )
    tx.proposals.draw(leased.id, draft)
    queue = {**rules.settings["queue"]}
    # The runs inside have together the share of the run around them.
    queue["weight"] /= leased.size
    if fleets := run.rules.fleets.of_run_inside(run.fleet, leased.cohort.island):
        queue["fleets"] = fleets
    new = NewRun(
        name=f"{run.name}:{member.ordinal}",
        problem=run.problem,
        strategy=rules.strategy,
        settings={**rules.settings, "queue": queue},
        operators=rules.operators,
        axes=scaled(problem.axes, rules.islands, member.reserved) if rules.gridded else (),
        seed=run.rng(member.ordinal, "inside").getrandbits(31),
        islands=rules.islands,
        budget=slice_of(run.budget, member.reserved),
        limits=InFlightLimits(queue["generating"] or SMALL, queue["evaluating"] or SMALL),
        parent=leased.id,
        in_process=run.in_process,
    )
    inside, proposals = found_run(ctx, tx, problem, new, tuple(dict.fromkeys(draft.parents)))
    if not tx.runs.goes_on(run.id):
        _stop(tx, inside.id, RunState.CANCELLED)
        return {}
    return proposals


def _child(tx: Transaction, inside: Run) -> Child | None:
    """Returns what a run that has ended found; None where it has to go on, or broke."""
    best = tx.history.best(inside.id)
    if inside.state is RunState.FAILED:
        seed = next(iter(tx.history.settled(inside.id, limit=1)), None)
        return seed.failure if best is None and seed is not None else None
    if inside.reason == WITH_THE_RUN_AROUND:
        return None
    if best is None or best.program is None:
        return Failure(FailureKind.NO_CODE, f"the run {inside.name} measured no program")
    what = f"the best of {inside.proposals} proposals of {inside.name}"
    changes = f"{what}: {best.changes}" if best.changes else what
    return Offspring(tx.programs.get([best.program])[best.program], changes)


def _keep_going(ctx: Context, run: Run, inside: Run) -> None:
    """Lets a run inside go on that was stopped with the run around, which goes on.

    Where it was stopped for itself, the run around is stopped for the same reason.
    """
    if inside.state is RunState.RUNNING:
        return
    if inside.reason == WITH_THE_RUN_AROUND:
        with ctx.store.begin() as tx:
            _resume(tx, inside.id, keep_leases=True)
        ctx.executor.submit("produce", [inside.id])
        return
    state = RunState.PAUSED if inside.state is RunState.PAUSED else RunState.FAILED
    stop(ctx, run.id, state, f"{inside.name} is {inside.state.value}: {inside.reason}")


def wanted_state(tx: Transaction, inside: Run) -> RunState:
    """Returns the state that a run inside is to have, by its proposal and the run around it."""
    if inside.parent is None:
        return RunState.RUNNING
    around, state = tx.runs.around(inside.parent)
    if around.state.final or state is not State.PLANNED:
        return RunState.CANCELLED
    return around.state


def stop_with_the_run_around(ctx: Context, run: int, state: RunState) -> None:
    """Pauses or cancels a run inside; see `wanted_state`."""
    with ctx.store.begin() as tx:
        _stop(tx, run, state)


def unended(tx: Transaction, run: int) -> list[tuple[Run, State]]:
    """Returns the runs inside a run that have not ended, with the states of their proposals."""
    inside = tx.runs.inside(run, reserving=True)
    return [(one.run, one.state) for one in inside if one.run and not one.run.state.final]


def going(ctx: Context, run: int) -> list[int]:
    """Returns the runs inside a run that have not ended."""
    with ctx.store.begin() as tx:
        return [inside.id for inside, _ in unended(tx, run)]


def refusal(store: Store, run: Run) -> str:
    """Returns why a run may not be paused, resumed or cancelled by itself; "" where it may."""
    if run.parent is None:
        return ""
    with store.begin() as tx:
        around, _ = tx.runs.around(run.parent)
    return f"{run.name} is inside {around.name}, and stops and goes on with it"


def end_unwanted(ctx: Context, run: int) -> None:
    """Cancels the runs inside a run whose proposals have settled."""
    with ctx.store.begin() as tx:
        states = unended(tx, run)
        unwanted = [inside.id for inside, state in states if state is not State.PLANNED]
        stopped = [inside for inside in unwanted if _stop(tx, inside, RunState.CANCELLED)]
    if stopped:
        ctx.executor.submit("produce", [run])


def stop_all(tx: Transaction, run: int, state: RunState) -> None:
    """Pauses or cancels every run inside a run; to be called before the run itself is locked."""
    for inside, _ in unended(tx, run):
        _stop(tx, inside.id, state)


def reopen(tx: Transaction, run: int, *, keep_leases: bool) -> list[int]:
    """Lets the runs inside a run go on whose proposals wait for them; returns those.

    To be called before the run itself is locked.
    """
    waiting = [
        one.run.id
        for one in tx.runs.inside(run, reserving=True)
        if one.run and one.state is State.PLANNED and one.run.state in _STOPPED
    ]
    return [inside for inside in waiting if _resume(tx, inside, keep_leases=keep_leases)]


def revise_inside(tx: Transaction, run: Run, revision: Revision) -> list[tuple[int, list[Changed]]]:
    """Gives the runs inside a run that have not ended the changed values that they had from it.

    To be called before the run itself is locked.

    Returns:
      Each of those runs with its changes, which are yet to be recorded.
    """
    revised = []
    for inside, _ in unended(tx, run.id):
        settings = {section: dict(values) for section, values in inside.settings.items()}
        inherited = []
        for change in revision.changes:
            section, _, name = change.setting.partition(".")
            own, had = settings.get(section, {}), run.settings.get(section, {})
            if change.setting in _OF_THE_RUN_AROUND or section == "budget":
                continue
            if own.get(name) == had.get(name) or change.setting == "queue.fleets":
                settings[section] = {**own, name: revision.settings[section][name]}
                inherited.append(change)
        if inherited and tx.runs.revise(inside, settings, inside.operators):
            revised.append((inside.id, inherited))
    return revised


def owes(tx: Transaction, run: Run) -> bool:
    """Returns whether runs inside a run have ended whose rest was not given back."""
    return run.rules.nested is not None and bool(_ended(tx, run))


def give_back(ctx: Context, run: Run) -> None:
    """Gives back what runs inside a run that have ended did not spend, each once.

    A run inside whose planning goes on in another process is left for the next time: after it,
    what has ended plans no more.
    """
    with ctx.store.begin() as tx:
        returned = [
            one
            for one in _ended(tx, run)
            if (one.run is None or tx.runs.lock_planning(one.run.id))
            and tx.proposals.unreserve(one.proposal)
        ]
        spent = sum(tx.runs.lock_spent(one.run.id) for one in returned if one.run is not None)
        if given := sum(one.reserved for one in returned) - spent:
            tx.runs.give_back(run.id, given)


def _ended(tx: Transaction, run: Run) -> list[InsideRun]:
    return [
        one
        for one in tx.runs.inside(run.id, reserving=True)
        if one.state is not State.PLANNED and (one.run is None or one.run.state.final)
    ]


def _stop(tx: Transaction, run: int, state: RunState) -> bool:
    fact = Cancelled if state is RunState.CANCELLED else Paused
    return change_state(tx, run, state, fact(reason=WITH_THE_RUN_AROUND))


def _resume(tx: Transaction, run: int, *, keep_leases: bool) -> bool:
    tx.leases.forget_attempts(run, keep_leases=keep_leases)
    if not tx.runs.set_state(run, _STOPPED, RunState.RUNNING):
        return False
    tx.events.emit(run, Resumed(budget=tx.runs.get(run).budget.proposals))
    return True
