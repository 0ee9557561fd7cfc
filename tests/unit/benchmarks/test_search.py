"""The search of the default settings in the simulation of `benchmarks.search`."""

import signal
from collections.abc import Iterator

import pytest

from app.domain.operator import Offspring
from benchmarks.search import TASKS, Machine, Search, stuck, within_seeds


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, stuck)
    yield
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize(
    "machine", [Machine(0.5, 32, 0.05, 2), Machine(2.0, 32, 5.0, 4)], ids=["fast", "slow sandboxes"]
)
def test_a_default_run_of_a_hundred_goes_six_generations_deep(machine: Machine) -> None:
    search = Search(TASKS["valleys"], "map_elites", "model", 100, seed=8)
    run = search.done(machine.order(100, seed=8))
    assert run.deepest >= 6, run
    assert run.first <= 33, run


def test_a_machine_holds_no_more_than_its_places() -> None:
    order = list(Machine(0.5, 4, 0.5, 2).order(40, 1))
    assert sorted(n for n in order if n >= 0) == sorted(~n for n in order if n < 0)
    flying = 0
    for turn in order:
        flying += 1 if turn >= 0 else -1
        assert 0 <= flying <= 4 + 2 + 2


def test_paired_edits_give_the_nth_child_of_a_program_whatever_its_ordinal() -> None:
    def first(arm: str, ordinal: int, seed: int) -> str:
        [_, child] = Search(TASKS["nk"], arm, "paired", 20, seed)._bred(ordinal)
        assert isinstance(child, Offspring)
        return child.program.source

    assert first("greedy", 0, 1) == first("map_elites", 7, 1)
    assert first("greedy", 0, 1) != first("greedy", 0, 2)


def test_arms_are_compared_within_a_seed() -> None:
    value, half = within_seeds([3.0, 1.0, 2.0, 5.0], [1.0, 1.0, 3.0, 0.0])
    assert value == 0.625
    assert half == pytest.approx(1.96 * (0.171875 / 4) ** 0.5)
