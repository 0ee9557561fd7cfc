"""Ratings as a fold over recorded games."""

import pytest

from app.domain.events import Played
from app.reports.ratings import MOST_RATED, rated


def game(first: str, second: str, score: float | None, cohort: int = 1) -> Played:
    return Played(
        cohort=cohort,
        first=first,
        second=second,
        game=0,
        score=score,
        moves=(),
        termination="",
        failure=None,
        culprit=None,
    )


def test_programs_are_rated_by_their_games_with_intervals_and_points() -> None:
    ratings = rated([game("a", "b", 1.0), game("b", "a", 0.0), game("b", "c", 0.5)])

    assert ratings[0].program == "a"
    assert {one.program: (one.games, one.points) for one in ratings} == {
        "a": (2, 2.0),
        "b": (3, 0.5),
        "c": (1, 0.5),
    }
    assert all(one.low < one.rating < one.high for one in ratings)


def test_a_void_game_counts_for_nothing() -> None:
    assert rated([game("a", "b", None)]) == []
    assert rated([game("a", "b", 1.0), game("b", "c", None)]) == rated([game("a", "b", 1.0)])


def test_a_generation_is_a_rating_period_of_elo() -> None:
    together = {one.program: one.elo for one in rated([game("a", "b", 1.0), game("a", "b", 1.0)])}
    apart = {one.program: one.elo for one in rated([game("a", "b", 1.0), game("a", "b", 1.0, 2)])}

    assert together["a"] == pytest.approx(1532.0)
    assert 1530.0 < apart["a"] < 1532.0


def test_the_programs_that_played_last_are_rated() -> None:
    games = [game(f"p{n}", f"p{n + 1}", 0.5, n) for n in range(3 * MOST_RATED)]

    ratings = rated(games)

    assert {one.program for one in ratings} == {
        f"p{n}" for n in range(2 * MOST_RATED + 1, 3 * MOST_RATED + 1)
    }
