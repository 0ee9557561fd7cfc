"""The recipes that the default search is compared with; parameters that recipes have in common."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.config.recipes import parameter_names, with_parameters
from app.domain.evaluation import Evaluation, Trial
from app.domain.games import bracket
from app.domain.operator import Draft
from app.domain.search.archive import Entrant
from app.domain.search.cohort import Cohort, Member, State
from app.domain.search.recipes import RECIPES
from app.domain.search.recipes.greedy import Greedy
from app.domain.search.recipes.random_search import RandomSearch
from app.domain.search.strategy import RecipeInputs, Strategy
from tests.islands import Island

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


def built(name: str, **parameters: Any) -> Strategy:
    return with_parameters(RECIPES[name], {}, parameters).strategy(INPUTS)


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


WITH_DEADLINES = [
    *((name, {}) for name, one in RECIPES.items() if "deadline_seconds" in parameter_names(one)),
    ("best_of_n", {"commit": False}),
]


@pytest.mark.parametrize(("name", "others"), WITH_DEADLINES)
def test_a_cohort_has_the_deadline_of_the_setting(name: str, others: dict[str, Any]):
    assert built(name, **others).deadline_seconds is None
    assert built(name, **others, deadline_seconds=7).deadline_seconds == 7


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
    assert built(name, **parameters).size(Island(0)) == size


@pytest.mark.parametrize(
    ("name", "parameter", "by_default"),
    [("beam", "width", 3), ("reflexion", "parents", 4), ("tree_of_thoughts", "breadth", 2)],
)
def test_as_many_programs_of_a_level_stay_as_the_settings_say(
    name: str, parameter: str, by_default: int
):
    children = [entrant(letter, float(n), 1) for n, letter in enumerate("abcdefgh")]

    assert len(offered(built(name), *children).best(9)) == by_default
    assert len(offered(built(name, **{parameter: 5}), *children).best(9)) == 5


def measured(stage: str) -> Cohort:
    """Returns a cohort of eight children of one seed, whose fitness rises, after one stage."""
    drafts = [Draft(n, 0, 0, 1, ("s" * 64,)) for n in range(8)]
    members = tuple(
        Member(n, n, State.TESTING, draft, letter * 64)
        for n, (draft, letter) in enumerate(zip(drafts, "abcdefgh", strict=True))
    )
    trials = {
        Trial(stage, (one.program,)): Evaluation({one.program: {"score": one.id + 1.0}})
        for one in members
        if one.program
    }
    return Cohort(1, 1, 0, "mutate", members, trials)


@pytest.mark.parametrize(
    ("name", "parameter", "by_default"), [("beam", "width", 3), ("tree_of_thoughts", "breadth", 2)]
)
def test_as_many_children_are_admitted_as_the_settings_say(
    name: str, parameter: str, by_default: int
):
    field = offered(built(name), entrant("s", 0.0, 0))

    def admitted(**parameters: int) -> int:
        return len(built(name, **parameters).promotion(measured("evaluate"), field).admit)

    assert (admitted(), admitted(**{parameter: 5})) == (by_default, 5)


def test_the_share_of_a_cascaded_cohort_goes_on_to_the_next_stage():
    stages = RecipeInputs((), ("cheap", "full"), (), 1, 300)

    def gone_on(**parameters: float) -> int:
        recipe = with_parameters(RECIPES["cascaded"], {}, parameters)
        return len(recipe.strategy(stages).promotion(measured("cheap"), Island(0)).test)

    assert (gone_on(), gone_on(share=0.25)) == (4, 2)


def test_a_cascaded_cohort_widens_as_the_setting_says():
    sizes = built("cascaded", fan_out=[3, 5]).size

    assert [sizes(Island(0, barren=n)) for n in (0, 3, 8)] == [3, 5, 5]
    assert [built("cascaded").size(Island(0, barren=n)) for n in (0, 1, 3, 8)] == [1, 2, 4, 4]


@pytest.mark.parametrize(
    ("parameters", "barren", "parent"),
    [
        ({}, 2, "h"),
        ({}, 3, "g"),
        ({"attempts": 2}, 2, "g"),
        ({}, 12, "h"),
        ({"parents": 5}, 12, "d"),
    ],
)
def test_attempts_and_parents_of_reflexion_say_whose_turn_it_is(
    parameters: dict[str, int], barren: int, parent: str
):
    strategy = built("reflexion", **parameters)
    children = [entrant(letter, float(n), 1) for n, letter in enumerate("abcdefgh")]

    island = replace(offered(strategy, *children), barren=barren)

    assert parents(strategy, island) == {parent: 300}


def test_a_tree_is_as_deep_as_the_setting_says():
    levels = [entrant(letter, -float(n), n) for n, letter in enumerate("abcde")]

    def parent(levels: list[Entrant], **parameters: int) -> str:
        strategy = built("tree_of_thoughts", **parameters)
        [root] = strategy.phases[0].selection(offered(strategy, *levels), Random(0)).parents
        return root.program[0]

    def ended(levels: list[Entrant], **parameters: int) -> bool:
        strategy = built("tree_of_thoughts", **parameters)
        return bool(strategy.upkeep.moves([offered(strategy, *levels)], Random(0)))

    assert parent(levels, depth=5) == "e"
    assert (ended(levels[:3]), ended(levels[:4])) == (False, True)
    assert (ended(levels[:3], depth=2), ended(levels[:4], depth=5)) == (True, False)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("beam", {"width": 4, "children": 5}), ("tree_of_thoughts", {"breadth": 4, "thoughts": 5})],
)
def test_each_program_of_a_level_has_as_many_children_as_the_setting_says(
    name: str, parameters: dict[str, int]
):
    assert [phase.proposals for phase in built(name, **parameters).phases] == [5] * 4


def test_a_bracket_places_programs_by_the_rounds_that_they_won():
    games = bracket("evaluate", ("a", "b"), 2, {})
    won = {
        trial: Evaluation({player: {"game": float(player == "a")} for player in trial.players})
        for trial in games
    }
    cohort = Cohort(1, 1, 0, "mutate", (), won)

    placing = built("tournament", pairing="bracket", games=2).placing

    assert placing is not None
    assert (placing(cohort, "a"), placing(cohort, "b")) == (1.0, 0.0)
    assert [built("tournament", pairing=one).placing for one in ("round_robin", "podium")] == [
        None
    ] * 2
