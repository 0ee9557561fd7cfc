"""Shares: what a run may have in flight beside others, and which run a free place goes to.

*Planning.*  Beside other runs a run plans for its share of the places of each stage, and for what
the others leave free of theirs (`share`).

*Projects.*  Projects share first, by their weights; within a project the runs of the highest
priority, by theirs.  A run of a lower priority has what those leave free.  Runs without a project
are one.

*At work.*  A place in a sandbox goes to the run that has the fewest trials at work for its weight,
so runs that always have trials waiting converge to shares in the ratio of their weights, and what
one leaves free the others use.  A trial is never interrupted.  So that a run of short trials does
not wait for the end of long ones, a run without a trial at work may begin one beyond the places.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

NEWCOMERS = 1
"""Trials that a worker runs beyond its places, each of a run that has no other at work."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A run and its proposals in each stage, at the fleets of one label.

    Attributes:
      weight: Of its share of its project's; > 0.
      fleet: The label.
      project_weight: Of the project's share; > 0.
    """

    run: int
    weight: float
    generating: int
    evaluating: int
    fleet: str = ""
    project: str = ""
    project_weight: float = 1.0
    priority: int = 0


def weights_of(runs: Sequence[InFlight]) -> dict[int, float]:
    """Returns the weight of each run among all: 0 where one of its project goes before it."""
    projects: dict[str, dict[int, InFlight]] = {}
    for one in runs:
        projects.setdefault(one.project, {})[one.run] = one
    weights: dict[int, float] = {}
    for members in projects.values():
        first = max(one.priority for one in members.values())
        own = {run: one.weight * (one.priority == first) for run, one in members.items()}
        scale = 1.0
        if len(projects) > 1:
            scale = next(iter(members.values())).project_weight / sum(own.values())
        weights |= {run: weight * scale for run, weight in own.items()}
    return weights


def share(run: int, weights: dict[int, float], in_flight: dict[int, int], places: int) -> int:
    """Returns the places of a stage that a run may plan for: its share, and what others leave.

    Args:
      run: The run.
      weights: Of each running run; see `weights_of`.
      in_flight: Proposals of each running run in the stage.
      places: Of the stage, over all workers.
    """
    total = sum(weights.values())
    taken = sum(
        min(in_flight[other], places * weight / total)
        for other, weight in weights.items()
        if other != run
    )
    return max(1, math.ceil(places * weights[run] / total), math.floor(places - taken))


@dataclass(frozen=True, slots=True)
class Claimant:
    """A run that could use a place.

    Attributes:
      weight: Of its share of its project's; > 0.
      at_work: Places that its trials have now.
      waiting: Whether a trial of it waits for a place.
      most: Places that it may have at most; None: no such limit.
      project_weight: Of the project's share; > 0.
    """

    run: int
    weight: float
    at_work: int
    waiting: bool
    most: int | None = None
    project: str = ""
    project_weight: float = 1.0
    priority: int = 0


def next_run(claimants: Sequence[Claimant], places: int | None) -> int | None:
    """Returns the run whose trial may begin now; None if none may.

    Ties: the older run.

    Args:
      claimants: The runs that go on.
      places: Of all workers together; None: not known, and as many as are asked for.
    """
    eligible = [
        claimant
        for claimant in claimants
        if claimant.waiting and (claimant.most is None or claimant.at_work < claimant.most)
    ]
    if not eligible:
        return None
    projects: Counter[str] = Counter()
    for claimant in claimants:
        projects[claimant.project] += claimant.at_work
    chosen = min(
        eligible,
        key=lambda claimant: (
            projects[claimant.project] / claimant.project_weight,
            -claimant.priority,
            claimant.at_work / claimant.weight,
            claimant.run,
        ),
    )
    at_work = sum(claimant.at_work for claimant in claimants)
    return chosen.run if not chosen.at_work or places is None or at_work < places else None
