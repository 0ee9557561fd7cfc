"""The advice of `evoq scale`, read from the ledger: runs, fleets, and the size that follows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.domain.run import Run
from app.domain.scaling import Fleet, Goal, Load, Sizing, fleet_name, sized
from app.domain.search.back_pressure import FEWEST_MEASURED
from app.engine.back_pressure import pressure, room_beyond_places, shared_capacity
from app.ports.ledger import Transaction
from app.ports.protocols import Store
from app.ports.workers import QueueDemand


def read_sizing(
    store: Store,
    goal: Goal,
    run: Run | None = None,
    places: Mapping[str, int] | None = None,
) -> Sizing:
    """Returns the size of each fleet for a run, or for all running ones.

    Args:
      store: The ledger.
      goal: The limits of the fleets.
      run: None for all; one that does not run needs no worker.
      places: Of one worker, by fleet, in place of what live workers report.

    Raises:
      ValueError: The goal limits dollars, and a worker that is needed has no known price.
    """
    given = places or {}
    with store.begin(snapshot=True) as tx:
        demand = tx.workers.demand(None if run is None else run.id)
        fleets = {fleet.name: fleet for fleet in tx.workers.fleets()}
        loads = [
            _load(tx, tx.runs.get(each), [one for one in demand if one.run == each])
            for each in dict.fromkeys(one.run for one in demand if one.places)
        ]
    for one in demand:
        fleets.setdefault(fleet_name(one.queue, one.tag), Fleet(one.queue, one.tag))
    known = [replace(f, places=given.get(f.name, f.places)) for f in fleets.values()]
    return sized(loads, known, goal)


def _load(tx: Transaction, run: Run, demand: Sequence[QueueDemand]) -> Load:
    """Reads a running run: a few bounded queries."""
    backlog, capacity = tx.proposals.backlog(run.id), shared_capacity(tx, run)
    measures = pressure(tx.proposals, run, backlog)
    flow, caps = measures.flow, measures.caps
    unplanned = run.budget.proposals - run.proposals
    left = unplanned + backlog.unsettled
    most = room_beyond_places(run, backlog, flow, capacity)
    if caps.generating is not None and caps.evaluating is not None:
        most = caps.generating + caps.evaluating
    places = {fleet_name(one.queue, one.tag): one.places for one in demand}
    steps = {fleet_name(one.queue, one.tag): one.steps for one in demand}
    seconds = None
    if flow is not None and flow.settled >= FEWEST_MEASURED:
        whole = {"gpu": flow.generating_seconds, "cpu": flow.evaluating_seconds}
        seconds = {
            fleet_name(one.queue, one.tag): whole[one.queue] * _part(one, demand) for one in demand
        }
    return Load(
        run.name,
        max(0, min(most, left)),
        left,
        seconds,
        places,
        {
            fleet_name(one.queue, one.tag): left
            if one.queue == "cpu"
            else unplanned + steps[fleet_name(one.queue, one.tag)]
            for one in demand
        },
    )


def _part(one: QueueDemand, demand: Sequence[QueueDemand]) -> float:
    """Returns the part of a queue's proposals that the fleet of one tag has."""
    return one.places / sum(other.places for other in demand if other.queue == one.queue)
