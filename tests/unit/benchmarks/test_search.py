"""The search of the default settings in the simulation of `benchmarks.search`."""

import functools
import signal
from collections.abc import Iterator
from statistics import median

import pytest

from app.domain.operator import Brief, Draft, ProgramRecord
from app.domain.program import Program
from benchmarks.ablations import ABLATIONS, CROSS
from benchmarks.search import TASKS, Machine, Search, in_line, stuck


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


@functools.cache
def _parents(task: str, arm: str) -> dict[str, str]:
    search = Search(TASKS[task], arm, "quarter", 80, 3)
    search.done(in_line(80, 8))
    return search.memory.parent


@pytest.mark.parametrize("arm", ABLATIONS)
def test_each_ablation_breeds_other_children_than_the_default(arm: str) -> None:
    assert any(_parents(task, arm) != _parents(task, "map_elites") for task in ("trap", "nk"))


def test_a_crossed_child_has_expressions_of_both_programs() -> None:
    programs = [
        Program(f"def f():\n    return [{a}, {b}, {b}, 7.0]\n") for a, b in ((1, 2), (3, 4))
    ]
    first, second = (program.id for program in programs)
    drafts = tuple(Draft(n, 0, 0, 1, (first,), (second,)) for n in range(20))
    known = {program.id: ProgramRecord(program) for program in programs}
    with pytest.raises(StopIteration) as ended:
        next(CROSS.converse(Brief("", "python", drafts, known, seed="1")))
    sources = {child.program.source.split("return ")[1].strip() for child in ended.value.value}
    assert {"[3, 2, 2, 7.0]", "[1, 4, 4, 7.0]"} <= sources
    assert not sources & {"[1, 2, 2, 7.0]", "[3, 4, 4, 7.0]"}
