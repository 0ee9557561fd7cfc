"""Cells, axes, islands: values and pure functions."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.rules import rules_of
from app.domain.evaluation import Evaluation
from app.domain.problem import Axis
from app.domain.search.archive import (
    Cell,
    Elite,
    Entrant,
    best,
    bin_index,
    by_signature,
    grid,
    islands_for,
    learnt,
    learnt_after,
    scaled,
)
from tests.islands import Island


def elite(name: str, fitness: float) -> Elite:
    return Elite(name, fitness, 10, 1)


def test_a_tie_keeps_the_older_occupant() -> None:
    cell = Cell((0,), (elite("old", 1.0),))
    assert best(1)(cell, elite("new", 1.0)) is cell


def test_a_fitter_entrant_takes_the_cell() -> None:
    cell = Cell((0,), (elite("old", 1.0),))
    assert best(1)(cell, elite("new", 1.1)).occupants == (elite("new", 1.1),)


def test_an_incumbent_that_returns_is_rated_anew() -> None:
    cell = Cell((), (elite("a", 0.9), elite("b", 0.8)))
    assert [e.program for e in best(2)(cell, elite("a", 0.1)).occupants] == ["b", "a"]


def test_a_program_that_returns_by_another_lineage_is_no_news() -> None:
    cell = Cell((), (Elite("a", 0.5, 1, generation=3),))
    assert best(1)(cell, Elite("a", 0.5, 1, generation=7)) is cell


def measured(program: str, score: float, **metrics: float) -> Elite:
    evaluation = Evaluation(scores={program: {"": score}}, metrics={program: metrics})
    return Entrant(program, score, 10, 1, (evaluation,)).elite(())


def test_programs_are_twins_if_all_their_metrics_are_equal() -> None:
    elite = measured("a", 1.0, speed=2.0, size=3.0)
    island = Island(0, cells={(0,): Cell((0,), (measured("z", 9.0), elite))})
    assert island.twin(measured("b", 1.0, size=3.0, speed=2.0)) == elite
    assert island.twin(measured("b", 1.0, size=3.0, speed=2.0000001)) is None
    assert island.twin(measured("b", 1.0, size=3.0)) is None
    assert island.twin(elite) is None, "a program is no twin of itself"


def test_a_program_that_stopped_earlier_is_no_twin() -> None:
    elite = measured("a", 1.0, speed=2.0)
    evaluation = Evaluation(scores={"b": {"": 1.0}}, metrics={"b": {"speed": 2.0}})
    early = Entrant("b", 1.0, 10, 1, (evaluation,), stages_left=1).elite(())
    assert Island(0, cells={(): Cell((), (elite,))}).twin(early) is None


def stopped(name: str, fitness: float) -> Elite:
    return Elite(name, fitness, 10, 0, stages_left=1)


def test_a_program_measured_at_every_stage_displaces_a_seed_that_stopped() -> None:
    cell = Cell((), (stopped("seed", 0.4),))
    assert best(1)(cell, elite("whole", 0.1)).occupants == (elite("whole", 0.1),)


def test_a_seed_that_stopped_displaces_nobody_who_was_measured_at_every_stage() -> None:
    cell = Cell((), (elite("whole", 0.1),))
    assert best(1)(cell, stopped("seed", 0.4)) is cell


def test_among_seeds_that_stopped_at_the_same_stage_the_fitter_one_is_kept() -> None:
    cell = Cell((), (stopped("one", 0.3),))
    assert best(1)(cell, stopped("two", 0.4)).occupants == (stopped("two", 0.4),)


def test_an_island_names_whole_measurements_before_seeds_that_stopped() -> None:
    cells = {(0,): Cell((0,), (stopped("seed", 0.4),)), (1,): Cell((1,), (elite("whole", 0.1),))}
    assert [one.program for one in Island(0, cells=cells).best(2)] == ["whole", "seed"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_the_best_of_a_cell_never_falls(scores: list[float]) -> None:
    cell, keep = Cell((0,)), best(1)
    highest = float("-inf")
    for n, score in enumerate(scores):
        cell = keep(cell, elite(str(n), score))
        highest = max(highest, score)
        assert cell.best.fitness == highest


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 50))
def test_every_value_has_a_bin(value: float, bins: int) -> None:
    assert 0 <= bin_index(Axis("x", bins, -1.0, 1.0), value) < bins


def test_values_outside_the_range_fall_into_the_outermost_bins() -> None:
    axis = Axis("x", 10, 0.0, 1.0)
    assert [bin_index(axis, value) for value in (-5, 0, 0.05, 0.95, 1, 5)] == [0, 0, 0, 9, 9, 9]


def test_an_axis_that_nobody_measured_is_an_error_that_names_it() -> None:
    entrant = Entrant("p" * 64, 1.0, 3, 0, (Evaluation(features={"p" * 64: {"x": 1.0}}),))
    with pytest.raises(ValueError, match="depth"):
        grid((Axis("depth", 3, 0.0, 1.0),))(entrant)


def test_a_seed_that_stopped_before_an_axis_was_measured_stands_in_its_first_bin() -> None:
    measured = (Evaluation(features={"p" * 64: {"x": 9.0}}),)
    entrant = Entrant("p" * 64, 1.0, 3, 0, measured, stages_left=1)
    niche = grid((Axis("x", 3, 0.0, 10.0), Axis("depth", 3, 0.0, 1.0)))
    assert niche(entrant) == (2, 0)


def test_open_axes_get_the_range_of_the_measured_values() -> None:
    measured = [{"open": 2.0}, {"open": 12.0}]
    assert learnt((Axis("open", 10),), measured) == (Axis("open", 10, 1.0, 13.0),)


def test_closed_axes_keep_their_range() -> None:
    axes = (Axis("open", 10), Axis("closed", 10, 0.0, 1.0))
    measured = [{"open": 2.0, "closed": 9.0}, {"open": 12.0, "closed": 9.0}]
    assert learnt(axes, measured) == (Axis("open", 10, 1.0, 13.0), Axis("closed", 10, 0.0, 1.0))


def test_a_provisional_range_is_learnt_again_and_then_frozen() -> None:
    [first] = learnt((Axis("x", 4),), [{"x": 10.0}], provisional=True)
    assert (first.low, first.high, first.provisional) == (5.0, 15.0, True)
    [second] = learnt((first,), [{"x": 0.0}, {"x": 100.0}])
    assert (second.low, second.high, second.provisional) == (-10.0, 110.0, False)
    assert learnt((second,), [{"x": 1e9}]) == (second,)


def test_a_uniform_draw_takes_distinct_cells() -> None:
    cells = {(n,): Cell((n,), (elite(str(n), n),)) for n in range(5)}
    island = Island(0, cells=cells)
    drawn = island.uniform(5, Random(1))
    assert len({e.program for e in drawn}) == 5
    assert [e.fitness for e in island.best(2, skip=1)] == [3, 2]


def test_programs_that_score_alike_on_every_case_share_a_cluster_with_a_short_name() -> None:
    rng = Random(1)
    scores = {f"case {n}": rng.random() for n in range(300)}

    def key(program: str, scores: dict[str, float]) -> tuple[object, ...]:
        evaluation = Evaluation(scores={program: scores}, verified=True)
        return by_signature(Entrant(program, 0.0, 1, 1, (evaluation,)))

    assert key("a", scores) == key("b", scores)
    assert key("a", scores) != key("a", scores | {"case 7": 2.0})
    assert len(repr(key("a", scores))) < 30


@pytest.mark.parametrize(
    ("proposals", "islands"), [(1, 1), (100, 1), (999, 1), (1000, 2), (2500, 5), (100_000, 5)]
)
def test_islands_grow_with_the_budget(proposals: int, islands: int) -> None:
    assert islands_for(proposals) == islands


@pytest.mark.parametrize(("budget", "programs"), [(1, 1), (100, 20), (249, 49), (5000, 50)])
def test_ranges_are_learnt_after_a_fifth_of_a_small_budget(budget: int, programs: int) -> None:
    assert learnt_after(budget) == programs
    for chosen, expected in ((None, programs), (7, 7)):
        settings = {"budget": {"proposals": budget}, "search": {"grid_after": chosen}}
        assert rules_of("map_elites", settings).grid_after == expected


@pytest.mark.parametrize(
    ("proposals", "islands", "bins"),
    [(10, 1, [2, 2]), (100, 1, [4, 4]), (300, 1, [7, 7]), (1000, 2, [10, 10]), (1000, 5, [6, 6])],
)
def test_bins_that_nobody_declared_follow_from_the_budget(
    proposals: int, islands: int, bins: list[int]
) -> None:
    axes = scaled([Axis("a", scaled=True), Axis("b", scaled=True)], islands, proposals)
    assert [axis.bins for axis in axes] == bins
    assert not any(axis.scaled for axis in axes)


def test_bins_that_are_declared_stay_and_count_towards_the_cells() -> None:
    axes = scaled([Axis("a", 12), Axis("b", scaled=True)], 1, 300)
    assert [axis.bins for axis in axes] == [12, 5]
