"""Runs share the places in sandboxes by weight, and a short trial does not wait for long ones."""

import heapq
from dataclasses import dataclass, replace

import pytest

from app.domain.search.shares import (
    NEWCOMERS,
    Claimant,
    InFlight,
    next_run,
    share,
    weights_of,
)

BUSY = Claimant(1, 1.0, at_work=4, waiting=True)
"""A run that has all of four places, and more to do."""


@pytest.mark.parametrize(
    ("weights", "in_flight", "places", "expected"),
    [
        ({1: 1.0}, {1: 50}, 16, 16),
        ({1: 1.0, 2: 1.0}, {1: 50, 2: 50}, 16, 8),
        ({1: 1.0, 2: 3.0}, {1: 50, 2: 50}, 16, 4),
        ({1: 1.0, 2: 1.0}, {1: 50, 2: 3}, 16, 13),  # the other leaves five of its eight
        ({1: 1.0, 2: 1.0, 3: 1.0}, {1: 0, 2: 0, 3: 0}, 16, 16),
        ({1: 1.0, 2: 100.0}, {1: 0, 2: 100}, 4, 1),
    ],
)
def test_a_run_plans_for_its_share_and_for_what_the_others_leave(
    weights: dict[int, float], in_flight: dict[int, int], places: int, expected: int
) -> None:
    assert share(1, weights, in_flight, places) == expected


def test_a_run_alone_has_all_places_and_no_more() -> None:
    assert next_run([replace(BUSY, at_work=3)], 4) == 1
    assert next_run([BUSY], 4) is None
    assert next_run([replace(BUSY, waiting=False)], 9) is None


def test_places_that_nobody_has_reported_are_no_limit() -> None:
    assert next_run([replace(BUSY, at_work=99)], None) == 1


def test_a_place_goes_to_the_run_with_the_fewest_at_work_for_its_weight() -> None:
    few, many = Claimant(1, 1.0, 2, waiting=True), Claimant(2, 1.0, 3, waiting=True)
    assert next_run([few, many], 8) == 1
    assert next_run([few, replace(many, weight=2.0)], 8) == 2
    assert next_run([replace(few, waiting=False), many], 8) == 2


def test_the_first_trial_of_a_run_begins_beyond_the_places() -> None:
    newcomer = Claimant(2, 1.0, 0, waiting=True)
    assert next_run([BUSY, newcomer], 4) == 2
    assert next_run([BUSY, replace(newcomer, at_work=1)], 4) is None


def test_a_run_keeps_to_its_own_limit_though_places_are_free() -> None:
    limited = Claimant(1, 1.0, 1, waiting=True, most=1)
    assert next_run([limited], 4) is None
    assert next_run([limited, Claimant(2, 1.0, 3, waiting=True)], 8) == 2
    assert next_run([replace(limited, at_work=0)], 4) == 1


@dataclass
class Simulated:
    """A run of trials that last `seconds` each, `gap` seconds of which pass between two of a chain.

    Attributes:
      chains: Trials that it has in flight at once.
      left: Trials still to be made; None for without end.
    """

    weight: float
    seconds: float
    gap: float
    chains: int
    left: int | None
    waiting: int = 0
    at_work: int = 0
    done: int = 0
    ended_at: float = 0.0
    busy: float = 0.0


def simulate(runs: list[Simulated], places: int, until: float, starts: list[float]) -> None:
    """Plays a deployment: a place that becomes free, or a trial that is made, leads to a choice."""
    events: list[tuple[float, int, str]] = []
    for index, (run, start) in enumerate(zip(runs, starts, strict=True)):
        for _ in range(run.chains):
            heapq.heappush(events, (start, index, "made"))
    tick = 0.0
    while tick < until:  # polls, as a worker that waits does
        heapq.heappush(events, (tick, -1, "poll"))
        tick += 0.2
    now = 0.0
    while events and now < until:
        now, index, what = heapq.heappop(events)
        if index >= 0:
            run = runs[index]
            if what == "ended":
                run.at_work -= 1
                run.done += 1
                run.ended_at = now
                heapq.heappush(events, (now + run.gap, index, "made"))
            elif run.left is None or run.left:
                run.left = None if run.left is None else run.left - 1
                run.waiting += 1
        while True:
            claimants = [
                Claimant(
                    n,
                    run.weight,
                    run.at_work,
                    waiting=bool(run.waiting),
                )
                for n, run in enumerate(runs)
            ]
            chosen = next_run(claimants, places)
            if chosen is None or sum(run.at_work for run in runs) >= places + NEWCOMERS:
                break
            run = runs[chosen]
            run.waiting -= 1
            run.at_work += 1
            run.busy += run.seconds
            heapq.heappush(events, (now + run.seconds, chosen, "ended"))


@pytest.mark.parametrize("places", [1, 2, 4, 16])
@pytest.mark.parametrize("gap", [0.01, 0.3, 1.0])
def test_a_short_run_behind_a_long_one_takes_at_most_twice_its_time(
    places: int, gap: float
) -> None:
    def short() -> Simulated:
        return Simulated(1.0, 0.05, gap, chains=1, left=20)

    alone = short()
    simulate([alone], places, 300.0, [0.0])
    beside = short()
    long = Simulated(1.0, 5.0, 0.01, chains=places + 2, left=None)
    simulate([long, beside], places, 300.0, [0.0, 7.0])
    assert beside.done == alone.done == 20
    assert beside.ended_at - 7.0 <= 2 * alone.ended_at


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_runs_that_always_have_trials_waiting_share_by_weight(weight: float) -> None:
    one = Simulated(1.0, 0.5, 0.0, chains=32, left=None)
    other = Simulated(weight, 2.0, 0.0, chains=32, left=None)
    simulate([one, other], 16, 400.0, [0.0, 3.0])
    assert other.busy / one.busy == pytest.approx(weight, rel=0.1)


def test_places_that_a_run_leaves_free_are_lent() -> None:
    seldom = Simulated(1.0, 0.1, 20.0, chains=1, left=None)  # it waits for its model
    long = Simulated(1.0, 1.0, 0.0, chains=8, left=None)
    simulate([seldom, long], 4, 200.0, [0.0, 0.0])
    assert long.busy > 0.9 * 4 * 200.0


def test_a_place_goes_to_the_project_with_the_fewest_at_work_then_to_the_higher_priority() -> None:
    many = Claimant(1, 1.0, 3, waiting=True, project="a")
    few = Claimant(2, 1.0, 0, waiting=True, project="a")
    other = Claimant(3, 1.0, 2, waiting=True, project="b")
    assert next_run([many, few, other], 8) == 3
    assert next_run([many, few, replace(other, project_weight=0.5)], 8) == 2
    urgent = replace(many, priority=1)
    assert next_run([urgent, few, replace(other, project_weight=0.5)], 8) == 1


def test_runs_of_one_project_and_one_priority_have_their_own_weights() -> None:
    runs = [InFlight(1, 1.0, 0, 0), InFlight(2, 3.0, 0, 0), InFlight(2, 3.0, 0, 0, "a")]
    assert weights_of(runs) == {1: 1.0, 2: 3.0}


def test_projects_share_by_their_weights_and_a_lower_priority_waits() -> None:
    runs = [
        InFlight(1, 1.0, 0, 0, project="a", project_weight=2.0),
        InFlight(2, 3.0, 0, 0, project="a", project_weight=2.0),
        InFlight(3, 5.0, 0, 0, project="a", project_weight=2.0, priority=-1),
        InFlight(4, 9.0, 0, 0),
    ]
    assert weights_of(runs) == {1: 0.5, 2: 1.5, 3: 0.0, 4: 1.0}
