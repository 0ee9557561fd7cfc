"""Every recipe with any finite fitness, score and feature: each of its decisions is made."""

import sys
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config.recipes import with_parameters
from app.domain.evaluation import Evaluation, Trial, fitness, mean_scores, signature
from app.domain.operator import Draft
from app.domain.problem import Axis
from app.domain.program import ProgramId
from app.domain.search.archive import Cell, Entrant, bin_index, learnt, left_out
from app.domain.search.cohort import Cohort, Member, State
from app.domain.search.gates import Quantile, TopOf
from app.domain.search.promotion import at_deadline, separated
from app.domain.search.recipes import RECIPES
from app.domain.search.recipes.funsearch import annealed, softmax
from app.domain.search.strategy import RecipeInputs, Strategy
from tests.islands import Island
from tests.unit.domain.test_finite import DOUBLES

VARIANTS = [
    *((name, {}) for name in RECIPES),
    *(("funsearch_lite", {"selection": one}) for one in ("rank", "weighted", "lexicase")),
    ("funsearch_lite", {"steady": True}),
    ("funsearch", {"temperature": 5e-324, "temperature_period": 3}),
    ("funsearch", {"temperature": sys.float_info.max}),
]
STAGES = ("quick", "whole")
NAMES = "abcdef"
MEASURED = st.lists(st.tuples(DOUBLES, DOUBLES, DOUBLES), min_size=6, max_size=6)
"""Of each program the score at either stage, and a feature."""


def program(letter: str) -> ProgramId:
    return letter * 64


def evaluation(letter: str, score: float, other: float, feature: float) -> Evaluation:
    player = program(letter)
    return Evaluation(
        {player: {"one": score, "other": other}}, {player: {"x": other}}, {player: {"x": feature}}
    )


def built(name: str, parameters: dict[str, object], axes: tuple[Axis, ...]) -> Strategy:
    inputs = RecipeInputs(axes, STAGES, (Quantile(0.5, 4),), 2, 300)
    return with_parameters(RECIPES[name], {}, parameters).strategy(inputs)


def occupied(strategy: Strategy, entrants: list[Entrant]) -> Island:
    """Returns an island that was offered programs, in order."""
    cells: dict[tuple[int | float | str, ...], Cell] = {}
    for entrant in entrants:
        key = strategy.niche(entrant)
        cells[key] = strategy.occupancy(cells.get(key, Cell(key)), entrant.elite(key))
    scores = {e.program: e.evaluations[0].scores[e.program] for e in entrants}
    recent = tuple(entrant.fitness for entrant in entrants)
    return Island(0, admitted=7, cells=cells, cases=scores, measured=dict.fromkeys(STAGES, recent))


def cohort(entrants: list[Entrant]) -> Cohort:
    """Returns a cohort whose members were measured at the first stage, and most at the second."""
    draft = Draft(0, 0, 0, 1, (program("a"),))
    members = tuple(
        Member(n, n, State.TESTING, replace(draft, ordinal=n), entrant.program, 10)
        for n, entrant in enumerate(entrants)
    )
    trials = {
        Trial(stage, (entrant.program,)): entrant.evaluations[0]
        for index, stage in enumerate(STAGES)
        for entrant in entrants[index:]
    }
    return Cohort(1, 1, 0, "mutate", members, trials)


@pytest.mark.parametrize(("name", "parameters"), VARIANTS)
@settings(max_examples=15)
@given(measured=MEASURED, number=st.integers(0, 99))
def test_every_recipe_decides_by_any_finite_numbers(
    name: str,
    parameters: dict[str, object],
    measured: list[tuple[float, float, float]],
    number: int,
):
    evaluations = [
        evaluation(*each) for each in zip(NAMES, *zip(*measured, strict=True), strict=True)
    ]
    entrants = []
    for n, (letter, each) in enumerate(zip(NAMES, evaluations, strict=True)):
        found = fitness(program(letter), [each])
        assert found is not None
        entrants.append(Entrant(program(letter), found, 10 + n, n // 2, (each,), n % 2))
    features = [entrant.features for entrant in entrants]
    strategy = built(name, parameters, learnt((Axis("x", 5),), features))

    island = occupied(strategy, entrants)
    if strategy.size(island):
        for turn in range(4):
            lineage = strategy.phase(turn).selection(island, Random(number))
            assert {parent.program for parent in lineage.parents} <= {*map(program, NAMES)}
    group = cohort(entrants)
    for verdict in (
        strategy.promotion(group, island),
        at_deadline(strategy.promotion, group, island),
    ):
        assert {*verdict.admit} <= {*map(program, NAMES)}
    for move in strategy.upkeep.moves((island, replace(island, index=1)), Random(number)):
        assert move.elite.program in {*map(program, NAMES)}


@given(st.lists(DOUBLES, min_size=1, max_size=8), DOUBLES)
def test_any_features_give_a_range_in_which_each_value_has_a_bin(values: list[float], later: float):
    features = [{"x": value} for value in values]

    [axis] = learnt((Axis("x", 7),), features)

    assert axis.low is not None
    assert axis.high is not None
    assert -sys.float_info.max <= axis.low < axis.high <= sys.float_info.max
    bins = [bin_index(axis, value) for value in sorted([*values, later])]
    assert bins == sorted(bins)
    assert {*bins} <= {*range(7)}


def test_a_mark_widens_no_range_and_has_the_last_bin():
    features = [{"x": 1.0}, {"x": 2.0}, {"x": sys.float_info.max}]

    [axis] = learnt((Axis("x", 4),), features)

    assert (axis.low, axis.high) == (0.9, 2.1)
    assert [bin_index(axis, each["x"]) for each in features] == [0, 3, 3]
    assert left_out(axis, features) == 1


@given(st.lists(DOUBLES, min_size=2, max_size=9), DOUBLES)
def test_any_measurements_are_compared_with_any_value(measured: list[float], other: float):
    apart = separated(measured, other)

    assert apart or min(measured) <= other <= max(measured) or len({*measured}) > 1


def test_noise_is_judged_alike_at_any_size():
    for size in (1.0, 1e300, 1e-300):
        close = [4.0 * size, 5.0 * size, 6.0 * size]
        assert not separated(close, 5.5 * size)
        assert separated(close, 50.0 * size)


@given(st.lists(DOUBLES, min_size=1, max_size=9), DOUBLES)
def test_gates_that_compare_take_any_fitness(recent: list[float], value: float):
    for gate in (Quantile(0.5, 9), TopOf(2, 9)):
        assert gate.passes(max([*recent, value]), recent)


@given(st.lists(DOUBLES, min_size=1, max_size=6), st.floats(5e-324, sys.float_info.max))
def test_weights_of_any_scores_lie_between_none_and_the_highest(scores: list[float], heat: float):
    weights = softmax(scores, annealed(heat, 10, 9))

    assert max(weights) == 1.0
    assert min(weights) >= 0.0


@given(st.lists(st.tuples(DOUBLES, DOUBLES), min_size=1, max_size=4))
def test_repetitions_of_any_scores_have_a_mean(scores: list[tuple[float, float]]):
    repetitions = [[evaluation("a", one, other, 0.0)] for one, other in scores]

    assert len(signature(program("a"), [mean_scores(program("a"), repetitions)])) == 2
