"""The capacity model is a function of what was measured."""

from dataclasses import replace

import pytest

from benchmarks.capacity import Constants, Deployment, demand

MEASURED = Constants(
    postgres_ms=5.0,
    worker_ms=10.0,
    redis_ms=0.5,
    commits=3.0,
    commit_ms=4.0,
    writes=0.5,
    row_rate=200.0,
    session_mib=8.0,
    ledger_bytes=2**10,
    messages=2.0,
)
TEN = Deployment(workers=10, places=4, trial_seconds=2.0, programs=2**20, runs=2, connections=15)


def test_demand_follows_from_the_places_at_work():
    asked = demand(TEN, MEASURED)

    assert asked["proposals_a_second"] == 20.0
    # Ten workers record every three seconds, and renew every ten.
    assert asked["postgres_cores"] == pytest.approx((20 + 10 * (1 / 3 + 1 / 10) / 3) * 5.0 / 1000)
    assert asked["worker_cores"] == pytest.approx(0.2)
    assert asked["share_of_a_runs_row"] == pytest.approx(20 / 2 * 0.5 / 200)
    assert asked["connections_without_a_pooler"] == 160
    assert asked["memory_gib_without_a_pooler"] == pytest.approx(1.25)
    assert asked["ledger_gib"] == 1.0


def test_a_pooler_leaves_a_session_for_each_listener_alone():
    quiet = demand(TEN, MEASURED)
    busy = demand(replace(TEN, workers=1000), MEASURED)

    assert quiet["sessions_with_a_pooler"] == 12
    assert quiet["sessions_with_a_pooler_and_no_listening"] == 2
    assert busy["sessions_with_a_pooler"] == pytest.approx(1000 + 2 * 2000 * 3.0 * 4.0 / 1000)
