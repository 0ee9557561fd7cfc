"""Gates between stages."""

import pytest

from app.domain.search.gates import AtLeast, Quantile, TopOf, gate


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (0.5, AtLeast(0.5)),
        ("-3", AtLeast(-3.0)),
        ("quantile 0.8 of 100", Quantile(0.8, 100)),
        ("top  10 of 100", TopOf(10, 100)),
    ],
)
def test_a_gate_is_read_from_a_setting(text: str | float, read: object):
    assert gate(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "quantile 1.5 of 10",
        "quantile 0.5 of 0",
        "top 3 of 2",
        "top 0 of 5",
        "top 1.5 of 9",
        "best",
        "",
    ],
)
def test_what_is_no_gate_is_refused(text: str):
    with pytest.raises(ValueError, match=f"a gate is a number.*not {text!r}"):
        gate(text)


def test_an_absolute_gate_compares_with_nothing():
    assert AtLeast(0.5).window == 0
    assert AtLeast(0.5).passes(0.5, ())
    assert not AtLeast(0.5).passes(0.49, ())


def test_a_quantile_is_that_of_the_newest_with_the_program_among_them():
    newest = (4.0, 1.0, 2.0, 3.0)

    assert [Quantile(0.75, 4).passes(each, newest) for each in newest] == [True, False, False, True]
    assert Quantile(0.9, 9).passes(1.0, (1.0,)), "the first program is the best"


def test_the_best_of_the_newest_pass_and_equal_ones_together():
    newest = (4.0, 1.0, 3.0, 3.0)

    assert [TopOf(2, 4).passes(each, newest) for each in newest] == [True, False, True, True]
