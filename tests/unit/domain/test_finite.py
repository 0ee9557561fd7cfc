"""Folds over any finite doubles, whose results are finite, and what they are."""

import math
import statistics
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.finite import (
    LARGEST,
    between,
    difference,
    mean,
    median,
    position,
    quantile,
    scaled,
    unmarked,
)

EXTREMES = (
    *(LARGEST, -LARGEST, 1.7e308, -1.7e308, 1e300, -1e300, 1e16, -1e16, 1.0, -3.0, 0.5),
    *(-0.0, 5e-324, -5e-324, sys.float_info.min),
)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(EXTREMES)
MANY = st.lists(DOUBLES, min_size=1, max_size=12)


@given(MANY)
def test_a_mean_is_the_exact_one_rounded(values: list[float]):
    exact = sum(map(Fraction, values)) / len(values)

    assert mean(values) == pytest.approx(float(exact), rel=1e-15, abs=5e-324)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_the_mean_of_usual_numbers_is_that_of_the_library(values: list[float]):
    assert mean(values) == statistics.fmean(values)


@given(DOUBLES, DOUBLES)
def test_a_difference_is_finite_and_has_the_sign_of_the_comparison(one: float, other: float):
    found = difference(one, other)

    assert math.isfinite(found)
    assert (found > 0, found < 0) == (one > other, one < other)


@given(DOUBLES, DOUBLES, st.floats(0.0, 1.0))
def test_a_number_between_two_lies_between_them(low: float, high: float, share: float):
    assert min(low, high) <= between(low, high, share) <= max(low, high)


@given(DOUBLES, DOUBLES, DOUBLES)
def test_a_position_is_a_share_that_rises_with_the_value(a: float, b: float, c: float):
    low, middle, high = sorted((a, b, c))

    assert position(low, low, high) == 0.0
    assert 0.0 <= position(middle, low, high) <= 1.0
    assert position(high, low, high) == (1.0 if high > low else 0.0)


@given(MANY, st.floats(0.0, 1.0))
def test_a_quantile_lies_among_the_values(values: list[float], share: float):
    assert min(values) <= quantile(values, share) <= max(values)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.sampled_from([0.0, 0.25, 0.5, 0.9])
)
def test_the_quantile_of_usual_numbers_is_that_of_numpy(values: list[float], share: float):
    expected = float(np.quantile(values, share))

    assert quantile(values, share) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert median(values) == pytest.approx(statistics.median(values), rel=1e-9, abs=1e-9)


@given(MANY)
def test_scaled_values_are_at_most_one_and_in_the_same_order(values: list[float]):
    found = scaled(values)

    assert max(map(abs, found)) <= 1.0
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [found[n] for n in order] == sorted(found)


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ([1.0, LARGEST], [1.0]),
        ([-30.0, -1e300, -1e300, -1e300, -29.0], [-30.0, -29.0]),
        ([LARGEST, -LARGEST, 1e300, 5e-324], [LARGEST, -LARGEST, 1e300, 5e-324]),
        ([-1.2e308, -1.3e308], [-1.2e308, -1.3e308]),
        ([1e99, 1.0], [1e99, 1.0]),
        ([], []),
    ],
)
def test_marks_are_numbers_that_no_measurement_is_as_large_as(
    values: list[float], left: list[float]
):
    assert unmarked(values) == left
