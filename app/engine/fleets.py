"""Fleets of a run: the label of a cohort that is planned, and how much each fleet has room for."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from app.domain.operator import Role
from app.domain.run import Run
from app.domain.search.back_pressure import Caps, plannable
from app.domain.search.fleets import FleetLoad, FleetRules, Room, bounds, free, queue_of, stuck
from app.domain.search.model_mix import WINDOW
from app.ports.fleets import Fleets
from app.ports.ledger import Transaction
from app.ports.proposals import Backlog


def plan_room(
    fleets: Fleets, run: Run, backlog: Backlog, caps: Caps, *, most: int, least: int
) -> Room:
    """Returns how many more proposals may be planned: in all, and for each fleet of the run.

    Args:
      fleets: Of the transaction of the planning.
      run: With its present limits.
      backlog: Its unsettled proposals.
      caps: The limits that the settings fix.
      most: In flight in both stages together.
      least: Proposals of one cohort.
    """
    limits, rules = run.limits, run.rules.fleets
    generating, evaluating = backlog.generating, backlog.evaluating
    gpu_free: Mapping[str, int] = {}
    cpu_free: Mapping[str, int] = {}
    if rules.divided and not run.in_process:
        places = fleets.places()
        gpu, cpu = _generating(rules, backlog, places), _evaluating(rules, backlog, places)
        gpu_bounds = bounds(limits.generating, gpu, least=least)
        cpu_bounds = bounds(limits.generating + limits.evaluating, cpu, least=least)
        gpu_free, cpu_free = free(gpu_bounds, gpu), free(cpu_bounds, cpu)
        generating -= stuck(gpu_bounds, gpu)
        evaluating -= sum(
            n for island, n in backlog.testing.items() if not cpu[rules.trial(island)].places
        )
    total = plannable(limits, caps, generating=generating, evaluating=evaluating, most=most)
    return Room(total, gpu_free, cpu_free)


def _generating(
    rules: FleetRules, backlog: Backlog, places: Mapping[str, int]
) -> dict[str, FleetLoad]:
    """Returns the load of each fleet that generates.

    Its share is that of its places; where models decide, that of their weights.
    """
    waiting = Counter[str]()
    for (_, label), n in backlog.planned.items():
        waiting[label] += n
    loads = {}
    for label in rules.generating:
        number = places.get(queue_of("gpu", label), 0)
        share = number if rules.islands else rules.models[label]
        loads[label] = FleetLoad(waiting[label], number, share)
    return loads


def _evaluating(
    rules: FleetRules, backlog: Backlog, places: Mapping[str, int]
) -> dict[str, FleetLoad]:
    """Returns the load of each fleet that evaluates: what is under test, and what will be."""
    in_flight = Counter[str]()
    for island, n in backlog.testing.items():
        in_flight[rules.trial(island)] += n
    for (island, label), n in backlog.planned.items():
        if places.get(queue_of("gpu", label)):
            in_flight[rules.trial(island)] += n
    numbers = {label: places.get(queue_of("cpu", label), 0) for label in rules.evaluating}
    return {label: FleetLoad(in_flight[label], n, n) for label, n in numbers.items()}


def fleet_draw(tx: Transaction, run: Run, room: Room, *, least: int) -> Callable[[int, int], str]:
    """Returns the function that draws the label of a cohort, by its island and first ordinal.

    Where models decide, the fleet is that of a model that is drawn by weight, or by what came of
    its children; fleets without a worker that have enough to do are left out.

    Args:
      tx: The transaction of the planning.
      run: The run.
      room: What may be planned.
      least: Proposals of one cohort.
    """
    rules, mix = run.rules.fleets, run.rules.asking.mixes.get(Role.GENERATOR)
    if rules.drawn:
        served = tx.fleets.places()
        left = {
            label: weight
            for label, weight in rules.models.items()
            if served.get(queue_of("gpu", label)) or room.generating.get(label, least) >= least
        }
        rules = replace(rules, models=left or rules.models)
    if not rules.drawn or mix is None:
        return lambda island, ordinal: rules.generation(island, lambda: run.rng(ordinal, "fleet"))
    mix = mix.of_fleets(rules.models)
    written = tx.completions.written(run.id, Role.GENERATOR, WINDOW)

    def draw(_: int, ordinal: int) -> str:
        return mix.fleet_of(mix.draw(written, run.rng(ordinal, "fleet")))

    return draw
