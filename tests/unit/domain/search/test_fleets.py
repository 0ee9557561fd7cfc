"""Labels of fleets, and what each fleet of a run has room for."""

from random import Random

import pytest

from app.domain.search.fleets import (
    UNSERVED,
    FleetLoad,
    FleetRules,
    Room,
    bounds,
    fleet_name,
    free,
    kind_of,
    label_of,
    queue_of,
    stuck,
    waiting_text,
)


def test_a_queue_is_a_kind_and_maybe_a_label() -> None:
    for queue in ("gpu", "cpu", "gpu:llama-3.1_70b", "cpu:0"):
        assert fleet_name(queue) == queue
        assert queue_of(kind_of(queue), label_of(queue)) == queue


@pytest.mark.parametrize(
    "text", ["", "gpu:", "control", "gpu:A", "gpu:a b", "gpu:a,cpu", "tpu:a", "gpu:" + "a" * 41]
)
def test_what_names_no_fleet_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="names no fleet"):
        fleet_name(text)


def test_a_fleet_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'cpu:a' is no fleet of the kind `gpu`"):
        fleet_name("cpu:a", "gpu")


def test_islands_take_fleets_in_turn_and_models_are_drawn_by_weight() -> None:
    rng = Random(1)
    turns = FleetRules(islands=("a", "b"), trials=("x",))
    assert [turns.generation(island, lambda: rng) for island in range(4)] == ["a", "b", "a", "b"]
    assert turns.queues == ["gpu:a", "gpu:b", "cpu:x"]
    assert FleetRules().queues == ["gpu", "cpu"]
    drawn = FleetRules(models={"a": 3.0, "b": 1.0})
    labels = [drawn.generation(0, lambda: rng) for _ in range(400)]
    assert 270 < labels.count("a") < 330


def test_each_served_fleet_has_its_share_and_an_unserved_one_little() -> None:
    loads = {
        "fast": FleetLoad(10, 30, 30),
        "slow": FleetLoad(40, 10, 10),
        "dead": FleetLoad(25, 0, 0),
    }
    bound = bounds(40, loads)
    assert bound == {"fast": 30, "slow": 10, "dead": UNSERVED}
    assert free(bound, loads) == {"fast": 20, "slow": -30, "dead": UNSERVED - 25}
    assert stuck(bound, loads) == 30 + 25
    assert bounds(40, loads, least=20)["dead"] == 20


def test_room_is_that_of_both_fleets_and_in_all() -> None:
    room = Room(9, {"a": 3, "b": 0}, {"x": 5})
    assert [room.of("a", "x"), room.of("b", "x"), room.of("c", "y")] == [3, 0, 9]
    assert room.without("a", "x", 2) == Room(7, {"a": 1, "b": 0}, {"x": 3})


def test_what_waits_is_named_with_the_worker_that_is_missing() -> None:
    assert waiting_text({}) == ""
    assert waiting_text({"gpu:a": 1, "cpu:highmem": 12}) == (
        "12 trials wait for a worker of cpu:highmem; start one with "
        "`celery -A app worker -Q cpu:highmem`; 1 proposal waits for a worker of gpu:a; start one "
        "with `celery -A app worker -Q gpu:a`"
    )
