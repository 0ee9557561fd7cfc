"""The recipes that the default search is compared with; parameters that recipes have in common."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from app.config.recipes import parameter_names, with_parameters
from app.domain.search.archive import Entrant, Island
from app.domain.search.recipes import RECIPES
from app.domain.search.recipes.greedy import Greedy
from app.domain.search.recipes.random_search import RandomSearch
from app.domain.search.strategy import RecipeInputs, Strategy

INPUTS = RecipeInputs((), ("evaluate",), (), 1, 300)


def entrant(name: str, fitness: float, generation: int) -> Entrant:
    return Entrant(name * 64, fitness, 10, generation, ())


def offered(strategy: Strategy, *entrants: Entrant) -> Island:
    """Returns an island that was offered programs, in order."""
    island = Island(0)
    for entrant in entrants:
        key = strategy.niche(entrant)
        cell = strategy.occupancy(island.cell(key), entrant.elite(key))
        island = Island(0, cells={**island.cells, key: cell})
    return island


def parents(strategy: Strategy, island: Island) -> Counter[str]:
    drawn = (strategy.selection(island, Random(n)) for n in range(300))
    return Counter(parent.program[0] for lineage in drawn for parent in lineage.parents)


def test_random_breeds_from_every_initial_program_and_never_from_a_child():
    strategy = RandomSearch().strategy(INPUTS)
    seeds = [entrant("a", 1.0, 0), entrant("b", 2.0, 0), entrant("c", 0.5, 0)]

    island = offered(strategy, *seeds, entrant("d", 9.0, 1), entrant("e", 5.0, 1))

    drawn = parents(strategy, island)
    assert set(drawn) == {"a", "b", "c"}
    assert sum(drawn.values()) == 300
    assert min(drawn.values()) > 60


def test_random_keeps_its_only_initial_program_beside_a_better_child():
    strategy = RandomSearch().strategy(INPUTS)

    island = offered(strategy, entrant("a", 1.0, 0), entrant("d", 2.0, 1), entrant("e", 9.0, 1))

    assert parents(strategy, island) == {"a": 300}
    assert [elite.program[0] for elite in island.best(9)] == ["e", "a"]


def test_random_shows_no_child_as_an_inspiration():
    strategy = RandomSearch().strategy(INPUTS)
    island = offered(strategy, entrant("a", 1.0, 0), entrant("d", 2.0, 1))

    assert strategy.selection(island, Random(0)).inspirations == ()


def test_greedy_breeds_from_the_fittest_program_alone():
    strategy = Greedy().strategy(INPUTS)

    island = offered(strategy, entrant("a", 1.0, 0), entrant("d", 3.0, 1), entrant("e", 2.0, 1))

    assert parents(strategy, island) == {"d": 300}
    assert island.size == 1


@pytest.mark.parametrize(
    "name",
    [name for name, recipe in RECIPES.items() if "deadline_seconds" in parameter_names(recipe)],
)
def test_a_cohort_has_the_deadline_of_the_setting(name: str):
    built = with_parameters(RECIPES[name], {}, {"deadline_seconds": 7}).strategy(INPUTS)

    assert built.deadline_seconds == 7
    assert with_parameters(RECIPES[name], {}, {}).strategy(INPUTS).deadline_seconds is None


@pytest.mark.parametrize(
    ("name", "parameters", "size"),
    [
        ("beam", {"width": 2, "children": 5}, 10),
        ("best_of_n", {"n": 5}, 5),
        ("best_of_n", {"n": 5, "commit": False}, 5),
        ("speculate", {"racers": 7}, 7),
        ("tournament", {"entrants": 5}, 5),
        ("tree_of_thoughts", {"breadth": 3, "thoughts": 5}, 15),
    ],
)
def test_a_cohort_is_as_large_as_the_settings_say(name: str, parameters: dict[str, Any], size: int):
    built = with_parameters(RECIPES[name], {}, parameters).strategy(INPUTS)

    assert built.size(Island(0)) == size
