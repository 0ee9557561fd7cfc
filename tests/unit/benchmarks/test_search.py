"""The search of the default settings in the simulation of `benchmarks.search`."""

import signal
from collections.abc import Iterator
from statistics import median

import pytest

from benchmarks.search import TASKS, Machine, Search, stuck


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, stuck)
    yield
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize(
    "machine", [Machine(0.5, 32, 0.05, 2), Machine(2.0, 32, 5.0, 4)], ids=["fast", "slow sandboxes"]
)
def test_a_default_run_of_a_hundred_goes_six_generations_deep(machine: Machine) -> None:
    runs = [
        Search(TASKS["valleys"], "map_elites", "model", 100, seed).done(machine.order(100, seed))
        for seed in (4, 6, 8)
    ]
    assert median(run.deepest for run in runs) >= 6, runs
    assert max(run.first for run in runs) <= 33, runs


def test_a_machine_holds_no_more_than_its_places() -> None:
    order = list(Machine(0.5, 4, 0.5, 2).order(40, 1))
    assert sorted(n for n in order if n >= 0) == sorted(~n for n in order if n < 0)
    flying = 0
    for turn in order:
        flying += 1 if turn >= 0 else -1
        assert 0 <= flying <= 4 + 2 + 2
