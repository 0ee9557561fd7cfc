"""Slices of a budget for runs inside a run."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.search.budget import Budget, Price
from app.domain.search.nested import LEAST, most_spent, slice_of, slices


@given(left=st.integers(0, 500), members=st.integers(1, 20), each=st.integers(1, 50))
def test_slices_never_exceed_what_is_left_and_leave_no_single_proposal(
    left: int, members: int, each: int
) -> None:
    cut = slices(left, members, each)

    taken = len(cut) + sum(cut)
    assert taken <= left
    assert bool(cut) == (left >= LEAST)
    assert len(cut) <= members
    assert all(1 <= one <= each + 1 for one in cut)
    assert left - taken != 1 or not cut


def test_what_the_budget_has_is_divided_evenly() -> None:
    assert slices(20, 3, 5) == (5, 5, 5)
    assert slices(12, 3, 5) == (3, 3, 3)
    assert slices(13, 3, 5) == (4, 3, 3)
    assert slices(5, 3, 5) == (2, 1)
    assert slices(19, 3, 5) == (5, 5, 6)
    assert slices(1, 3, 5) == ()


@given(
    parts=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    rest=st.integers(0, 40),
    tokens=st.integers(1_000, 10**9),
)
def test_slices_of_tokens_and_cost_never_exceed_those_of_the_run_around(
    parts: list[int], rest: int, tokens: int
) -> None:
    budget = Budget(len(parts) + sum(parts) + rest, 60.0, tokens, 10.0)

    cut = [slice_of(budget, part) for part in parts]

    assert sum(one.tokens or 0 for one in cut) <= tokens
    assert sum(one.cost_usd or 0.0 for one in cut) <= 10.0
    assert [one.proposals for one in cut] == parts
    assert {one.wall_seconds for one in cut} == {None}


def test_without_caps_a_slice_has_none() -> None:
    assert slice_of(Budget(10), 5) == Budget(5)
    assert most_spent(Budget(10), 5) == Price()
    assert most_spent(Budget(10, tokens=100), 0) == Price()
    assert most_spent(Budget(10, tokens=100), 5) == Price(50)
