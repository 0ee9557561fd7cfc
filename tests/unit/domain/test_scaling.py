"""The arithmetic of fleets: one rate for all stages, and the goal's limits."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.scaling import Fleet, Goal, Load, Sizing, sized

MANY = {"gpu": 10_000, "cpu": 10_000}
RUN = Load("r", 100, 10_000, {"gpu": 8.0, "cpu": 2.0}, {"gpu": 40, "cpu": 6}, MANY)
FLEETS = (Fleet("gpu", places=32, usd_per_hour=4.0), Fleet("cpu", places=8, usd_per_hour=0.5))
FREE = Goal()


def replicas(sizing: Sizing) -> dict[str, int]:
    return {size.queue: size.replicas for size in sizing.fleets}


def test_both_fleets_are_sized_for_one_rate() -> None:
    """100 in flight of 10 s each are 10/s: 80 steps at a model, 20 in a sandbox."""
    sizing = sized([RUN], FLEETS, FREE)
    assert replicas(sizing) == {"gpu": 3, "cpu": 3}
    assert sizing.fleets[0].why == "10/s × 8 s = 80 at work, 32 places a worker"
    assert (sizing.per_second, sizing.usd_per_hour) == (10.0, 13.5)
    assert sizing.ends_in_seconds == {"r": 1010.0}


def test_a_deadline_takes_the_fewest_workers_that_keep_it() -> None:
    sizing = sized([RUN], FLEETS, Goal(deadline_seconds=4010.0))
    assert replicas(sizing) == {"gpu": 1, "cpu": 1}
    assert (sizing.per_second, sizing.late) == (2.5, ())


@pytest.mark.parametrize("seconds", [500.0, 10.0, 1.0])
def test_a_deadline_that_no_fleet_keeps_names_the_run(seconds: float) -> None:
    sizing = sized([RUN], FLEETS, Goal(deadline_seconds=seconds))
    assert (replicas(sizing), sizing.late) == ({"gpu": 3, "cpu": 3}, ("r",))


def test_the_most_of_one_fleet_makes_the_other_smaller() -> None:
    sizing = sized([RUN], FLEETS, Goal(most={"gpu": 1}))
    assert replicas(sizing) == {"gpu": 1, "cpu": 1}
    assert sizing.per_second == 4.0
    assert sizing.fleets[1].why.endswith("8 places a worker; the most of gpu is 1")


def test_dollars_limit_the_rate() -> None:
    sizing = sized([RUN], FLEETS, Goal(usd_per_hour=9.0))
    assert replicas(sizing) == {"gpu": 2, "cpu": 2}
    assert (sizing.usd_per_hour, sizing.too_dear) == (9.0, False)
    assert "$9 an hour allow no more" in sizing.fleets[0].why


def test_less_than_one_worker_each_is_said_and_not_advised() -> None:
    sizing = sized([RUN], FLEETS, Goal(usd_per_hour=3.0))
    assert (replicas(sizing), sizing.too_dear) == ({"gpu": 1, "cpu": 1}, True)


def test_dollars_without_a_price_are_an_error_that_names_the_fleet() -> None:
    unpriced = [replace(FLEETS[0], usd_per_hour=None), FLEETS[1]]
    with pytest.raises(ValueError, match="no price of a worker is known: gpu"):
        sized([RUN], unpriced, Goal(usd_per_hour=3.0))
    assert sized([RUN], unpriced, FREE).usd_per_hour is None


def test_where_nothing_is_measured_the_demand_is_served_and_said() -> None:
    new = replace(RUN, seconds=None, places={"gpu": 4, "cpu": 1})
    sizing = sized([new], FLEETS, FREE)
    assert replicas(sizing) == {"gpu": 1, "cpu": 1}
    assert sizing.fleets[0].why == "nothing measured yet; demand of 4, 32 places a worker"
    assert (sizing.per_second, sizing.ends_in_seconds) == (0.0, {"r": None})


def test_a_fleet_that_never_had_a_worker_gets_one() -> None:
    sizing = sized([RUN], [Fleet("gpu"), Fleet("cpu")], FREE)
    assert replicas(sizing) == {"gpu": 1, "cpu": 1}
    assert "the places of a worker are not known" in sizing.fleets[0].why


def test_without_a_run_there_is_no_worker() -> None:
    sizing = sized([], FLEETS, Goal(deadline_seconds=5.0, usd_per_hour=1.0))
    assert replicas(sizing) == {"gpu": 0, "cpu": 0}
    assert sizing.fleets[0].why == "no running run has work for it"
    assert (sizing.usd_per_hour, sizing.too_dear, sizing.late) == (0.0, False, ())


def test_a_run_whose_proposals_are_all_written_needs_no_model_any_more() -> None:
    ending = replace(RUN, in_flight=12, left=12, places={"cpu": 12}, most={"cpu": 12})
    assert replicas(sized([ending], FLEETS, FREE)) == {"gpu": 0, "cpu": 1}


def test_runs_add_up_whatever_is_measured_of_them() -> None:
    new = Load("new", 4, 50, None, {"gpu": 20, "cpu": 1}, MANY)
    sizing = sized([RUN, new], FLEETS, FREE)
    assert replicas(sizing) == {"gpu": 4, "cpu": 3}
    assert "80 at work, and 20 of runs without measurements" in sizing.fleets[0].why


@given(
    st.integers(1, 1000),
    st.floats(0.01, 100.0),
    st.floats(0.01, 100.0),
    st.integers(1, 64),
    st.floats(4.5, 200.0),
    st.integers(1, 20),
)
def test_no_limit_is_exceeded_and_no_place_is_paid_for_in_vain(
    in_flight: int, model: float, sandbox: float, places: int, usd: float, most: int
) -> None:
    load = replace(RUN, in_flight=in_flight, seconds={"gpu": model, "cpu": sandbox})
    fleets = [replace(FLEETS[0], places=places), FLEETS[1]]
    sizing = sized([load], fleets, Goal(usd_per_hour=usd, most={"cpu": most}))
    assert sizing.usd_per_hour is not None
    assert sizing.usd_per_hour <= usd * (1 + 1e-6)
    assert not sizing.too_dear
    for size in sizing.fleets:
        assert size.places is not None
        assert size.at_work <= size.replicas * size.places * (1 + 1e-6)
        assert size.replicas == 1 or size.at_work > (size.replicas - 1) * size.places * (1 - 1e-6)
    assert sizing.fleets[1].replicas <= most
    assert sizing.per_second <= load.per_second * (1 + 1e-6)
