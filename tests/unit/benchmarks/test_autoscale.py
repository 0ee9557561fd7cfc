"""The simulated autoscaler keeps to the rules that it is said to have."""

import pytest

from benchmarks.autoscale import MOST, POLICIES, Policy, Recording, Simulation, Workers, simulated

RECORDING = Recording([(2.0, 1.0)], 0.0, {})
BY_NAME = {policy.name: policy for policy in POLICIES}
START = 180.0


def run_of(policy: Policy, proposals: int = 200) -> Simulation:
    return simulated(RECORDING, [(60.0, proposals)], policy, START, horizon=3600.0)


def test_replicas_at_most_double_or_grow_by_four_and_ignore_a_tenth() -> None:
    fleet = Workers("cpu", 0.0)
    fleet.autoscale(1000.0, 8.0, 0.0)
    assert not fleet.replicas, "from nothing, KEDA starts the first"
    fleet.scale(1, 0.0)
    sizes = []
    for now in (0.0, 15.0, 30.0):
        fleet.autoscale(1000.0, 8.0, now)
        sizes.append(len(fleet.replicas))
    assert sizes == [5, 10, 20]
    fleet.autoscale(8.0 * 20 * 1.09, 8.0, 45.0)
    assert len(fleet.replicas) == 20


def test_the_highest_recommendation_of_five_minutes_holds() -> None:
    fleet = Workers("gpu", 0.0)
    fleet.scale(8, 0.0)
    sizes = {}
    for now in range(0, 420, 15):
        fleet.autoscale(256.0 if now == 0 else 32.0, 32.0, float(now))
        sizes[now] = len(fleet.replicas)
    assert (sizes[0], sizes[300], sizes[315]) == (8, 8, 1)
    assert fleet.paid == pytest.approx(7 * 315.0)


@pytest.mark.parametrize("name", ["`evoq_demand`", "`/api/scale`"])
def test_a_run_ends_and_its_fleet_goes_to_zero(name: str) -> None:
    found = run_of(BY_NAME[name])
    [run] = found.runs
    assert run.begun_at is not None
    assert run.ended_at is not None
    assert len(run.settled) == 200
    assert START <= run.begun_at - 60.0 <= START + 30.0 + 20.0
    gpu = found.fleets["gpu"]
    assert gpu.paid <= MOST["gpu"] * (run.ended_at + 300.0 + 30.0)
    assert gpu.paid < 3600.0, "one GPU that is kept costs more"


def test_a_fixed_fleet_is_paid_for_all_the_time_and_begins_at_once() -> None:
    found = run_of(Policy("", fixed={"gpu": 2, "cpu": 4}))
    [run] = found.runs
    assert found.fleets["gpu"].paid == 2 * 3600.0
    assert run.begun_at is not None
    assert run.begun_at - 60.0 <= 11.0


def test_steps_of_a_removed_replica_are_done_by_another() -> None:
    found = simulated(
        RECORDING, [(0.0, 50)], Policy("", fixed={"gpu": 1, "cpu": 1}), 0.0, horizon=30.0
    )
    [run] = found.runs
    assert run.unsettled == 4, "all were given back at the horizon"
    assert sum(len(fleet.waiting) for fleet in found.fleets.values()) == 4
