"""Selection and migration of the MAP-Elites recipe."""

from collections import Counter
from random import Random

from app.domain.search.archive import Cell, Elite, Island
from app.domain.search.recipes.map_elites import explore_or_exploit, neighbours


def island(n: int, index: int = 0) -> Island:
    cells = {(k,): Cell((k,), (Elite(f"{index}-{k}", float(-k), 10, k, (k,)),)) for k in range(n)}
    return Island(index, epoch=3, cells=cells)


def select(explore: float, exploit: float, archive: int = 100) -> Counter[str]:
    chosen = explore_or_exploit(
        explore=explore, exploit=exploit, archive=archive, top=2, inspirations=1
    )
    return Counter(chosen(island(10), Random(n)).parents[0].program for n in range(600))


def test_exploration_reaches_every_cell() -> None:
    assert len(select(1.0, 0.0)) == 10


def test_exploitation_stays_among_the_fittest_of_its_archive() -> None:
    assert set(select(0.0, 1.0, archive=3)) == {"0-0", "0-1", "0-2"}


def test_the_weighted_draw_prefers_the_fitter_whatever_the_sign() -> None:
    drawn = select(0.0, 0.0)
    assert drawn["0-0"] > 2 * drawn["0-8"]


def test_inspirations_are_distinct_and_never_the_parent() -> None:
    chosen = explore_or_exploit(explore=0.5, exploit=0.4, archive=100, top=3, inspirations=2)
    for n in range(200):
        lineage = chosen(island(10), Random(n))
        shown = [e.program for e in lineage.inspirations]
        assert len(shown) == len(set(shown)) == 5
        assert lineage.parents[0].program not in shown


def test_an_island_of_one_still_breeds() -> None:
    chosen = explore_or_exploit(explore=0.2, exploit=0.7, archive=100, top=3, inspirations=2)
    assert chosen(island(1), Random(0)).inspirations == ()


def test_a_draft_carries_its_islands_epoch_and_the_next_generation() -> None:
    chosen = explore_or_exploit(explore=0.0, exploit=1.0, archive=1, top=0, inspirations=0)
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
