"""Directions are read from a strategist's list, whatever its form; the packaged ones suffice."""

import pytest

from app.domain.evaluation import FailureKind
from app.domain.operator import Completion, Direction, TriedDirection
from app.domain.prompting.directions import PACKAGED, packaged, read_directions, tried_text

ONE, TWO = "search: Look two moves ahead.", "book: Learn openings."


def read(text: str, most: int = 9) -> list[Direction]:
    return read_directions(Completion(text, "wise"), most)


@pytest.mark.parametrize(
    "reply",
    [
        f"1. {ONE}\n2. {TWO}\n",
        "Of two:\n\n1) [Search] Look two\n moves ahead.\n\n2) [Book]: Learn openings.\n\nBye.",
        f"- {ONE}\n- {TWO}",
        "**1. Search:** Look two moves ahead.\n**2. Book:** Learn openings.",
        f"<think>\n1. other: no\n</think>\n1. {ONE}\n2. {TWO}",
        f"1. {ONE}\n2. {ONE}\n3. {TWO}",
        f"1. search: Look two\x00moves\ud800ahead.\n2. {TWO}",
    ],
)
def test_a_list_gives_its_directions_each_once(reply: str):
    assert read(reply) == [
        Direction("search", "Look two moves ahead.", "wise"),
        Direction("book", "Learn openings.", "wise"),
    ]


def test_a_direction_needs_no_category():
    assert read("1. Try a beam search with width 8, since greedy steps fail") == [
        Direction("", "Try a beam search with width 8, since greedy steps fail", "wise")
    ]


def test_no_more_directions_are_read_than_were_asked_for():
    assert [one.text for one in read("1. a b\n2. c d\n3. e f", most=2)] == ["a b", "c d"]


@pytest.mark.parametrize(
    "reply", ["", "I cannot help with that.", "```python\nx = 1\n```", "1.  \n"]
)
def test_a_reply_without_a_list_has_none(reply: str):
    assert read(reply) == []


def test_a_long_direction_is_cut():
    [direction] = read("1. " + "word " * 1000)

    assert len(direction.text) == 600


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 8, 10])
def test_proposals_with_a_common_step_meet_every_packaged_direction(step: int):
    met = [packaged(n * step) for n in range(len(PACKAGED))]

    assert len(set(met)) == len(PACKAGED) == len({one.text for one in PACKAGED})


def test_a_strategist_is_shown_how_each_direction_fared():
    tried = (
        TriedDirection(Direction("search", "Look ahead."), 0.75, 0.5),
        TriedDirection(Direction("", "Learn."), 2.0),
        TriedDirection(Direction("ties", "Draw lots."), failure=FailureKind.TIMEOUT),
        TriedDirection(Direction("speed", "Be quick."), None, 0.5),
    )

    assert tried_text(tried) == (
        "- search: Look ahead. → fitness 0.75, +0.25 to its parent\n"
        "- Learn. → fitness 2\n"
        "- ties: Draw lots. → failed: timeout\n"
        "- speed: Be quick. → not measured\n"
    )
