"""FunSearch: clusters, their temperature, the preference for short programs, and resets."""

import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from app.domain.evaluation import Evaluation
from app.domain.search.archive import Cell, Elite, Entrant
from app.domain.search.recipes.funsearch import (
    FunSearch,
    annealed,
    length_weights,
    softmax,
    weaker_half,
)
from app.domain.search.strategy import RecipeInputs, Strategy
from tests.islands import Island

INPUTS = RecipeInputs((), ("evaluate",), (), 4, 300)


def elite(name: str, fitness: float, length: int = 10, stages_left: int = 0) -> Elite:
    return Elite(name * 64, fitness, length, 1, (name,), stages_left)


def island(*clusters: tuple[Elite, ...], index: int = 0, admitted: int = 0) -> Island:
    cells = {members[0].cell: Cell(members[0].cell, members) for members in clusters}
    return Island(index, admitted=admitted, cells=cells)


def entrant(name: str, *scores: float, length: int = 10) -> Entrant:
    cases = {str(n): score for n, score in enumerate(scores)}
    return Entrant(name * 64, 0.0, length, 1, (Evaluation({name * 64: cases}),))


def first_parents(strategy: Strategy, island: Island, draws: int = 2000) -> Counter[str]:
    drawn = (strategy.selection(island, Random(n)) for n in range(draws))
    return Counter(lineage.parents[0].program[0] for lineage in drawn)


def test_programs_that_score_alike_on_every_case_share_a_cluster():
    niche = FunSearch().strategy(INPUTS).niche

    alike, other = niche(entrant("a", 1.0, 3.0)), niche(entrant("b", 3.0, 1.0))

    assert niche(entrant("c", 1.0, 3.0)) == alike
    assert other != alike, "the means are equal, the cases are not"
    assert len(alike[0]) == 16


def test_a_cluster_keeps_its_shortest_programs():
    occupancy = FunSearch(cluster_size=2).strategy(INPUTS).occupancy
    cell = Cell(())
    for name, length in (("a", 30), ("b", 20), ("c", 40), ("d", 10), ("e", 20)):
        cell = occupancy(cell, replace(elite(name, 1.0, length), cell=()))

    assert [member.program[0] for member in cell.occupants] == ["d", "b"]


def test_clusters_are_drawn_by_the_softmax_of_their_scores():
    strategy = FunSearch(parents=1, temperature=1.0).strategy(INPUTS)

    drawn = first_parents(strategy, island((elite("a", 0.0),), (elite("b", 1.0),)))

    assert drawn["b"] / drawn["a"] == pytest.approx(math.e, rel=0.2)


def test_the_temperature_falls_with_admitted_programs_and_rises_again():
    assert annealed(0.1, 100, 0) == 0.1
    assert annealed(0.1, 100, 75) == pytest.approx(0.025)
    assert annealed(0.1, 100, 99) == pytest.approx(0.001)
    assert annealed(0.1, 100, 100) == 0.1


def test_a_cold_island_draws_its_fittest_cluster():
    strategy = FunSearch(parents=1, temperature=1.0, temperature_period=100).strategy(INPUTS)
    clusters = ((elite("a", 0.0),), (elite("b", 1.0),))

    assert first_parents(strategy, island(*clusters, admitted=99)) == {"b": 2000}
    assert first_parents(strategy, island(*clusters, admitted=100))["a"] > 300


def test_of_a_cluster_the_shorter_program_is_likelier_but_not_certain():
    short, long = elite("a", 1.0, 10), replace(elite("b", 1.0, 100), cell=("a",))
    strategy = FunSearch(parents=1).strategy(INPUTS)

    drawn = first_parents(strategy, island((short, long)))

    assert drawn["a"] / drawn["b"] == pytest.approx(math.exp(0.9), rel=0.2)
    assert length_weights([10, 100]) == pytest.approx([1.0, math.exp(-0.9)])


def test_the_parents_of_a_child_are_distinct_and_the_fittest_is_the_first():
    strategy = FunSearch(parents=2, temperature=10.0).strategy(INPUTS)
    clusters = island((elite("a", 0.0),), (elite("b", 1.0),), (elite("c", 2.0),))

    lineages = [strategy.selection(clusters, Random(n)) for n in range(200)]

    counts = Counter(len(lineage.parents) for lineage in lineages)
    assert set(counts) == {1, 2}, "a program that is drawn twice counts once"
    assert all(
        len({parent.program for parent in lineage.parents}) == len(lineage.parents)
        and list(lineage.parents) == sorted(lineage.parents, key=lambda e: -e.fitness)
        for lineage in lineages
    )


def test_a_score_of_fewer_stages_is_not_compared_with_a_whole_one():
    stopped = elite("a", 100.0, stages_left=1)
    strategy = FunSearch(parents=1, temperature=100.0).strategy(INPUTS)

    assert first_parents(strategy, island((stopped,), (elite("b", 1.0),))) == {"b": 2000}


def test_scores_of_any_size_have_weights():
    assert softmax([-1e308, 0.0, -1e-300], 1e-9) == [0.0, 1.0, 1.0]


def test_the_weaker_half_of_the_islands_is_founded_anew_from_the_stronger():
    islands = [island((elite(str(n), float(n)),), index=n) for n in (3, 0, 4, 1, 2)]

    moves = weaker_half(islands, Random(1))

    assert {move.target for move in moves} == {0, 1}
    assert all(move.reset for move in moves)
    assert {move.source for move in moves} <= {2, 3, 4}
    assert all(move.elite == islands_best for move in moves for islands_best in
               next(i for i in islands if i.index == move.source).best(1))  # fmt: skip
    sources = {move.source for n in range(50) for move in weaker_half(islands, Random(n))}
    assert sources == {2, 3, 4}, "founders are drawn"


def test_equal_islands_are_reset_by_lot():
    islands = [island((elite("a", 1.0),), index=n) for n in range(2)]

    targets = {move.target for n in range(50) for move in weaker_half(islands, Random(n))}

    assert targets == {0, 1}


def test_an_island_without_a_program_is_weaker_than_any():
    islands = [island((elite("a", -9.0),), index=0), Island(1)]

    [move] = weaker_half(islands, Random(0))

    assert (move.source, move.target) == (0, 1)
    assert weaker_half([Island(0), Island(1)], Random(0)) == ()


def test_islands_are_reset_each_so_many_cohorts_of_an_island():
    upkeep = FunSearch(reset_interval=5).strategy(INPUTS).upkeep

    assert [n for n in range(1, 61) if upkeep.due(n)] == [20, 40, 60]
    assert not any(FunSearch(reset_interval=0).strategy(INPUTS).upkeep.due(n) for n in range(1, 61))


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("parents", 0),
        ("temperature", 0.0),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("temperature_period", 0),
        ("cluster_size", 0),
        ("reset_interval", -1),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(parameter: str, value: float):
    with pytest.raises(ValueError, match=f"{parameter} must be .* not {value:g}"):
        FunSearch(**{parameter: value})
