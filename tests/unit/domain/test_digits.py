"""Numbers as text: different values never look alike."""

import math

from hypothesis import given
from hypothesis import strategies as st

from app.domain.digits import exact_text, number_text, number_texts

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def test_values_that_six_digits_tell_apart_have_six():
    assert number_texts([2.63512345, 2.5, None]) == ["2.63512", "2.5", "–"]


def test_a_tiny_gain_is_seen():
    start, best = 2.63499997, 2.6349999751384496

    assert number_texts([best, start, 1 / 3]) == ["2.63499998", "2.63499997", "0.333333"]
    assert number_text(best) == "2.635"


def test_neighbours_among_floats_differ():
    assert number_texts([1.0, math.nextafter(1.0, 2.0)]) == ["1", "1.0000000000000002"]


@given(st.lists(st.one_of(FLOATS, FLOATS.map(lambda x: math.nextafter(x, 0.0))), max_size=12))
def test_equal_values_have_equal_texts_and_others_never(values: list[float]):
    neighbours = [*values, *(math.nextafter(value, 0.0) for value in values)]

    texts = dict(zip(neighbours, number_texts(neighbours), strict=True))

    assert len(set(texts.values())) == len(texts)


def test_values_beside_are_told_apart_and_have_no_text():
    start, best = 2.63499997, 2.6349999751384496

    assert number_texts([best, 1 / 3], [start, best, None]) == ["2.63499998", "0.333333"]


@given(FLOATS)
def test_an_exact_text_is_read_as_the_same_number(value: float):
    text = exact_text(value)

    assert float(text) == value
    assert len(text) <= max(len(f"{value:.6g}"), len(repr(value)))


def test_an_exact_text_is_short_where_it_can_be():
    assert [exact_text(value) for value in (2.0, -0.25, 1e300, 2.6349999751384496, None)] == [
        "2",
        "-0.25",
        "1e+300",
        "2.6349999751384496",
        "–",
    ]
