"""Calls that are asked in parts: what is reported of them where some failed."""

import pytest

from app.adapters.model.providers.partial_results import PartialResult, merged
from app.domain.operator import Completion
from app.ports.protocols import Misconfigured, Unavailable


def said(*texts: str) -> list[Completion]:
    return [Completion(text) for text in texts]


def fault(*ends: PartialResult) -> Unavailable:
    """Returns what is raised of parts of two prompts each, one beside the other."""
    places = [[part, part + len(ends)] for part in range(len(ends))]
    with pytest.raises(Unavailable) as caught:
        merged(places, ends)
    return caught.value


def test_completions_are_in_the_order_of_their_prompts() -> None:
    replies = merged([[0, 3], [], [2, 1]], [said("a", "d"), [], said("c", "b")])

    assert [reply.text for reply in replies] == ["a", "b", "c", "d"]


def test_a_failure_holds_the_answers_of_every_part_by_position() -> None:
    half = Unavailable("half", answered={1: Completion("f")})

    reported = fault(said("a", "d"), Unavailable("gone"), half)

    assert {place: one.text for place, one in reported.answered.items()} == {0: "a", 3: "d", 5: "f"}


def test_requests_that_may_be_billed_are_added_up() -> None:
    reported = fault(
        Unavailable("one", unanswered=2), said("b", "d"), Unavailable("c", unanswered=3)
    )

    assert str(reported) == "one"
    assert reported.unanswered == 5


def test_a_part_that_needs_a_person_decides_the_error() -> None:
    reported = fault(Unavailable("later"), Misconfigured("set a key"))

    assert isinstance(reported, Misconfigured)
    assert str(reported) == "set a key"


def test_a_complete_failure_is_raised_unchanged() -> None:
    only = Unavailable("gone", unanswered=1)

    assert fault(only) is only
