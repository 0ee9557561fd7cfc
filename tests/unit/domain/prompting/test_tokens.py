"""The estimate of a text's tokens."""

import pytest

from app.domain.prompting import tokens
from app.domain.prompting.tokens import estimated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("value\n", 2),
        ("initialisation", 3),
        ("    x = 12345\n\n\n", 7),
        ("\n" * 10, 1),
        ("é" * 20, 18),
    ],
)
def test_each_kind_of_piece_has_its_share(text: str, expected: int) -> None:
    assert estimated(text) == expected


def test_many_shares_are_summed_exactly() -> None:
    assert estimated("(" * 15) == 12, "marks of 0.8 each"


def test_a_line_of_an_earlier_text_is_not_estimated_again() -> None:
    lines = [f"remembered_line_{n} = compute(width, {n}) * 0.5" for n in range(50)]
    first = estimated("\n".join(lines))
    misses = tokens._remembered.cache_info().misses

    assert estimated("\n".join([*lines[25:], *lines[:25]])) == first
    assert tokens._remembered.cache_info().misses == misses


def test_long_lines_are_estimated_but_not_kept() -> None:
    before = tokens._remembered.cache_info().currsize

    assert estimated("word " * 400) == 400
    assert tokens._remembered.cache_info().currsize == before
