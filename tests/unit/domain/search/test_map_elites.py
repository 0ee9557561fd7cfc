"""Selection and migration of the MAP-Elites recipe."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from app.domain.problem import Axis
from app.domain.search.archive import Bred, Cell, Elite
from app.domain.search.recipes.map_elites import (
    MapElites,
    default_patience,
    explore_or_exploit,
    neighbours,
    promising,
)
from app.domain.search.strategy import RecipeInputs
from tests.islands import Island


def island(n: int, index: int = 0) -> Island:
    cells = {(k,): Cell((k,), (Elite(f"{index}-{k}", float(-k), 10, k, (k,)),)) for k in range(n)}
    return Island(index, epoch=3, cells=cells)


def siblings(n: int) -> Island:
    """Returns an island whose programs are all of one generation."""
    cells = island(n).cells.items()
    same = {key: Cell(key, (replace(cell.best, generation=1),)) for key, cell in cells}
    return replace(island(n), cells=same)


def select(explore: float, exploit: float, archive: int | None = 100) -> Counter[str]:
    chosen = explore_or_exploit(
        explore=explore, exploit=exploit, archive=archive, patience=5, top=2, inspirations=1
    )
    return Counter(chosen(island(10), Random(n)).parents[0].program for n in range(600))


def test_exploration_reaches_every_cell() -> None:
    assert len(select(1.0, 0.0)) == 10


def test_exploitation_stays_among_the_fittest_of_its_archive() -> None:
    assert set(select(0.0, 1.0, archive=3)) == {"0-0", "0-1", "0-2"}


@pytest.mark.parametrize(
    ("children", "parent"),
    [
        ({}, "0-0"),
        ({"0-0": 4}, "0-0"),
        ({"0-0": 5}, "0-1"),
        ({"0-0": 9, "0-1": 7, "0-3": 2}, "0-2"),
        ({f"0-{k}": 5 for k in range(10)}, "0-0"),
    ],
)
def test_exploitation_leaves_a_program_that_is_exhausted(
    children: dict[str, int], parent: str
) -> None:
    chosen = explore_or_exploit(
        explore=0.0, exploit=1.0, archive=None, patience=5, top=0, inspirations=0
    )
    bred = replace(siblings(10), children=children)
    [taken] = chosen(bred, Random(0)).parents
    assert taken.program == parent


@pytest.mark.parametrize(
    ("generations", "children", "parent"),
    [
        ([1, 4, 2, 3, 9], [0, 0, 0, 0, 0], 0),
        ([1, 2, 4, 3, 9], [5, 0, 0, 0, 0], 2),
        ([1, 4, 4, 3, 9], [5, 0, 0, 0, 0], 1),
        ([1, 4, 2, 3, 9], [5, 5, 0, 0, 0], 4),
        ([1, 4, 2, 3, 9], [5, 5, 5, 5, 5], 0),
    ],
)
def test_where_the_best_is_exhausted_the_longest_line_of_the_next_three_goes_on(
    generations: list[int], children: list[int], parent: int
) -> None:
    fittest = [
        Bred(Elite(str(rank), -float(rank), 10, generation), born)
        for rank, (generation, born) in enumerate(zip(generations, children, strict=True))
    ]
    assert promising(fittest, 5, _Draws(0.7)).program == str(parent)


class _Draws(Random):
    """Draws the same number each time."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def random(self) -> float:
        return self._number


@pytest.mark.parametrize(
    ("children", "duplicates", "generation", "draw", "parent"),
    [
        (5, 0, 1, 0.66, "0"),
        (5, 0, 1, 0.67, "1"),
        (14, 1, 1, 0.0, "0"),
        (15, 0, 1, 0.0, "1"),
        (14, 2, 1, 0.0, "1"),
        (5, 0, 0, 0.0, "1"),
        (4, 2, 0, 0.99, "0"),
    ],
)
def test_two_draws_of_three_stay_with_a_bred_best_whose_children_do_not_repeat(
    children: int, duplicates: int, generation: int, draw: float, parent: str
) -> None:
    fittest = [
        Bred(Elite("0", 2.0, 10, generation), children, duplicates),
        Bred(Elite("1", 1.0, 10, 3), 0),
    ]
    assert promising(fittest, 5, _Draws(draw)).program == parent


def test_without_an_archive_size_the_weighted_draw_reaches_every_cell() -> None:
    assert len(select(0.0, 0.0, archive=None)) == 10


def test_parameters_of_the_recipe_reach_its_decisions() -> None:
    inputs = RecipeInputs((Axis("k", 10, 0.0, 10.0),), ("evaluate",), (), 2, 300)
    islands = [island(10, 0), island(10, 1)]

    def parents(**parameters: float) -> set[str]:
        selection = MapElites(archive_size=2, **parameters).strategy(inputs).selection  # type: ignore[arg-type]
        return {selection(island(10), Random(n)).parents[0].program for n in range(200)}

    def migrants(**parameters: float) -> int:
        upkeep = MapElites(**parameters).strategy(inputs).upkeep  # type: ignore[arg-type]
        return len(upkeep.moves(islands, Random(0)))

    assert parents(exploration_ratio=0.0, exploitation_ratio=1.0) == {"0-0"}
    assert len(parents(exploration_ratio=1.0, exploitation_ratio=0.0)) == 10
    half = MapElites(archive_size=10, exploration_ratio=0.0, exploitation_ratio=0.0)
    drawn = [half.strategy(inputs).selection(island(10), Random(n)) for n in range(300)]
    ranks = Counter(lineage.parents[0].program for lineage in drawn)
    assert ranks["0-0"] > 2 * ranks["0-4"]  # by rank, where exploitation would draw each alike
    assert (migrants(), migrants(migration_rate=0.5)) == (2, 10)
    for parameters, shown in (({}, 5), ({"top_programs": 1}, 3), ({"inspirations": 0}, 3)):
        selection = MapElites(**parameters).strategy(inputs).selection
        assert len(selection(island(10), Random(0)).inspirations) == shown
    due = MapElites(migration_interval=3).strategy(inputs).upkeep
    assert [n for n in range(1, 13) if due.due(n)] == [6, 12]


def test_an_archive_of_all_islands_is_divided_among_them() -> None:
    axes = (Axis("k", 10, 0.0, 10.0),)
    for islands, reach in ((1, 6), (3, 2), (10, 1)):
        inputs = RecipeInputs(axes, ("evaluate",), (), islands, 300)
        recipe = MapElites(archive_size=6, exploration_ratio=0.0, exploitation_ratio=1.0)
        selection = recipe.strategy(inputs).selection
        drawn = {selection(island(10), Random(n)).parents[0].program for n in range(200)}
        assert drawn == {f"0-{k}" for k in range(reach)}


@pytest.mark.parametrize(("budget", "patience"), [(20, 10), (100, 10), (150, 15), (5000, 20)])
def test_patience_is_a_tenth_of_the_budget_from_ten_to_twenty(budget: int, patience: int) -> None:
    assert default_patience(budget) == patience
    inputs = RecipeInputs((Axis("k", 10, 0.0, 10.0),), ("evaluate",), (), 1, budget)
    own = MapElites(exploration_ratio=0.0, exploitation_ratio=1.0)
    for recipe, least in ((own, patience), (replace(own, patience=3), 3)):
        for children, rank in ((least - 1, 0), (least, 1)):
            view = replace(siblings(10), children={"0-0": children})
            drawn = recipe.strategy(inputs).selection(view, Random(1)).parents[0]
            assert drawn.program == f"0-{rank}"


def test_patience_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="patience must be at least 1, not 0"):
        MapElites(patience=0)


def test_the_weighted_draw_prefers_the_fitter_whatever_the_sign() -> None:
    drawn = select(0.0, 0.0)
    assert drawn["0-0"] > 2 * drawn["0-8"]


def test_inspirations_are_distinct_and_never_the_parent() -> None:
    chosen = explore_or_exploit(
        explore=0.5, exploit=0.4, archive=100, patience=5, top=3, inspirations=2
    )
    for n in range(200):
        lineage = chosen(island(10), Random(n))
        shown = [e.program for e in lineage.inspirations]
        assert len(shown) == len(set(shown)) == 5
        assert lineage.parents[0].program not in shown


def test_an_island_of_one_still_breeds() -> None:
    chosen = explore_or_exploit(
        explore=0.2, exploit=0.7, archive=100, patience=5, top=3, inspirations=2
    )
    assert chosen(island(1), Random(0)).inspirations == ()


def test_a_draft_carries_its_islands_epoch_and_the_next_generation() -> None:
    chosen = explore_or_exploit(
        explore=0.0, exploit=1.0, archive=1, patience=5, top=0, inspirations=0
    )
    draft = chosen(island(4), Random(0)).draft(17, island(4))
    assert (draft.ordinal, draft.epoch, draft.generation) == (17, 3, 1)


def test_a_ring_offers_the_fittest_to_both_neighbours() -> None:
    upkeep = neighbours(50, 0.2)
    moves = upkeep.moves([island(10, n) for n in range(4)], Random(0))
    assert {(m.source, m.target) for m in moves} == {
        (0, 1), (0, 3), (1, 0), (1, 2), (2, 1), (2, 3), (3, 0), (3, 2)
    }  # fmt: skip
    assert sum(m.source == 0 and m.target == 1 for m in moves) == 2
    assert [n for n in range(151) if upkeep.due(n)] == [50, 100, 150]


def test_a_single_island_has_no_neighbour() -> None:
    assert neighbours(1, 0.5).moves([island(5)], Random(0)) == ()


def test_two_islands_are_each_others_only_neighbour() -> None:
    moves = neighbours(1, 0.0).moves([island(5, 0), island(5, 1)], Random(0))
    assert [(m.source, m.target) for m in moves] == [(0, 1), (1, 0)]
