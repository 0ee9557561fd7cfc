"""Pressure: the load of a run's two stages in the ledger, and the limits that follow from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.run import Run
from app.domain.search import back_pressure
from app.domain.search.back_pressure import Caps, Flow, most_in_flight, sized, window
from app.domain.search.fleets import FleetKind, queue_of
from app.domain.search.shares import InFlight, share, weights_of
from app.ports.ledger import Transaction
from app.ports.proposals import Backlog, Proposals
from app.ports.workers import Capacity

QUICK_SECONDS = 1.0
"""Trials that take less are waited for by their successors."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """The load of a run's two stages.

    Attributes:
      caps: The limits that the settings fix.
      flow: None where nothing was measured: too little has settled.
    """

    caps: Caps
    flow: Flow | None


def pressure(proposals: Proposals, run: Run, backlog: Backlog) -> Pressure:
    """Measures a run: one bounded read."""
    caps = run.rules.queue
    settled = run.ordinals - backlog.unsettled
    wanted = window(0 if caps.fixed else backlog.unsettled)
    return Pressure(caps, proposals.flow(run.id, min(settled, wanted)))


def most_of(
    run: Run, backlog: Backlog, flow: Flow | None, capacity: Capacity, *, asks: bool
) -> int:
    """Returns how many proposals of a run may be in flight in both stages together.

    Without a model, as many children are made ahead as there are sandboxes, if their trials are
    quick: a place in a sandbox would wait for the messages of the next trial otherwise.

    Args:
      run: The run.
      backlog: Its unsettled proposals.
      flow: What was measured.
      capacity: The places that the run may plan for.
      asks: Whether its operators ask a model.
    """
    quick = flow is not None and flow.evaluating_seconds < QUICK_SECONDS
    ahead = capacity.sandbox if quick else 0
    settled = run.proposals - backlog.unspent
    return most_in_flight(
        run.budget.proposals,
        settled,
        model=capacity.model if asks else ahead,
        sandbox=capacity.sandbox,
    )


def room_beyond_places(run: Run, backlog: Backlog, flow: Flow | None, capacity: Capacity) -> int:
    """Returns how many proposals of a run might be in flight if each found a place."""
    return most_of(run, backlog, flow, replace(capacity, model=None), asks=True)


def shared_capacity(tx: Transaction, run: Run) -> Capacity:
    """Returns the places that a run may plan for: beside other runs, its share of all.

    In sandboxes no more than the run's own limit of trials at once.  A run that one process alone
    works on has none of the workers' places.
    """
    limit, fleets = run.rules.queue.trials_at_once, run.rules.fleets
    if run.in_process:
        return Capacity(None, limit)
    places, runs = tx.fleets.places(), tx.proposals.in_flight()
    model = _sum([_share(run.id, runs, places, "gpu", label) for label in fleets.generating])
    sandbox = _sum([_share(run.id, runs, places, "cpu", label) for label in fleets.evaluating])
    if limit is not None:
        sandbox = limit if sandbox is None else min(limit, sandbox)
    return Capacity(model, sandbox)


def _share(
    run: int, runs: Sequence[InFlight], places: Mapping[str, int], kind: FleetKind, label: str
) -> int | None:
    """Returns the places of a fleet that a run may plan for; None where they are not known.

    Args:
      run: The run.
      runs: All that run, by fleet.
      places: Of each queue.
      kind: Of the fleet.
      label: Of the fleet.
    """
    number = places.get(queue_of(kind, label))
    in_flight = {one.run: 0 for one in runs if one.run == run}
    in_flight |= {
        one.run: one.generating if kind == "gpu" else one.evaluating
        for one in runs
        if one.fleet == label
    }
    if number is None or len(in_flight) < 2 or run not in in_flight:
        return number
    weights = weights_of([one for one in runs if one.run in in_flight])
    return share(run, weights, in_flight, number)


def _sum(places: Sequence[int | None]) -> int | None:
    known = [number for number in places if number is not None]
    return sum(known) if known else None


def unplaced(
    run: Run, backlog: Backlog, measures: Pressure, capacity: Capacity, *, free: int, left: int
) -> int:
    """Returns how many proposals more places would let a run plan; see the domain's `unplaced`.

    Args:
      run: The run, with its present limits.
      backlog: Its unsettled proposals.
      measures: Its load.
      capacity: The places that it may plan for.
      free: Proposals that it may plan now.
      left: Proposals of its budget that are not planned.
    """
    more = back_pressure.unplaced(
        measures.flow,
        run.limits,
        measures.caps,
        generating=backlog.generating,
        evaluating=backlog.evaluating,
        most=room_beyond_places(run, backlog, measures.flow, capacity),
        free=free,
    )
    return min(more, max(0, left - free))


def resized(run: Run, measures: Pressure, capacity: Capacity, *, most: int, least: int) -> Run:
    """Returns the run with the limits that hold now."""
    flow, caps, before, sandbox = measures.flow, measures.caps, run.limits, capacity.sandbox
    limits = sized(flow, caps, before, most=most, least=least, sandbox=sandbox)
    return replace(run, limits=limits)
