"""The search of the default settings in the simulation of `benchmarks.search`."""

import functools
import signal
from collections.abc import Iterator

import pytest

from app.domain.operator import Brief, Draft, Offspring, ProgramRecord
from app.domain.program import Program
from app.domain.search.archive import Cell, Elite, Island
from benchmarks.ablations import ABLATIONS, CROSS, leaving
from benchmarks.search import TASKS, Machine, Search, in_line, stuck, within_seeds


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


@functools.cache
def _parents(task: str, arm: str) -> dict[str, str]:
    search = Search(TASKS[task], arm, "quarter", 80, 6)
    search.done(in_line(80, 8))
    return search.memory.parent


@pytest.mark.parametrize("arm", ABLATIONS)
def test_each_ablation_breeds_other_children_than_the_default(arm: str) -> None:
    assert any(_parents(task, arm) != _parents(task, "map_elites") for task in ("trap", "nk"))


def test_an_adaptive_mix_asks_the_model_that_helps_more_often_than_a_fixed_one() -> None:
    children = {}
    for arm in ("fixed_helps", "adaptive_helps"):
        search = Search(TASKS["constants"], arm, "model", 80, 3)
        outcomes = search.done(in_line(80, 8))
        assert sum(made for made, _ in outcomes.written.values()) == 80
        assert outcomes.spent["80"] >= outcomes.spent["10"]
        children[arm] = outcomes.written["able"][0]
    assert children["adaptive_helps"] > 1.2 * children["fixed_helps"]


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


@pytest.mark.parametrize(
    ("children", "parent"),
    [([9, 0, 0, 0], "0"), ([10, 0, 0, 0], "3"), ([30, 9, 10, 10], "1"), ([30, 10, 10, 10], "0")],
)
def test_the_former_default_leaves_its_best_for_good(children: list[int], parent: str) -> None:
    elites = [Elite(str(n), -float(n), 10, n, (n,)) for n in range(len(children))]
    cells = {elite.cell: Cell(elite.cell, (elite,)) for elite in elites}
    born = {str(n): children for n, children in enumerate(children)}
    assert leaving(Island(0, cells=cells, children=born)).program == parent


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
