"""Pairings of games, and ratings as folds over them."""

from itertools import permutations
from random import Random

import pytest

from app.domain.games import BASE, Game, against, bradley_terry, elo, pairings


def played(seed: int = 3, players: str = "abcd", games: int = 60) -> list[Game]:
    """Games in which whoever is earlier in the alphabet wins three of four."""
    rng = Random(seed)
    drawn = []
    for _ in range(games):
        first, second = rng.sample(players, 2)
        better = 1.0 if first < second else 0.0
        drawn.append(Game(first, second, better if rng.random() < 0.75 else 1.0 - better))
    return drawn


def test_each_pair_of_a_round_robin_plays_with_each_program_first() -> None:
    trials = pairings("match", ("a", "b", "c"), 2)
    firsts = [trial.players for trial in trials]
    assert len(trials) == len({(trial.players, trial.cases) for trial in trials}) == 12
    assert all(firsts.count(pair) == 2 for pair in permutations("abc", 2))


def test_newcomers_play_the_podium_and_not_each_other() -> None:
    pairs = {frozenset(t.players) for t in against("match", ("a", "b"), ("a", "c", "d"), 1)}
    assert pairs == {frozenset(pair) for pair in ("ab", "ac", "ad", "bc", "bd")}


def test_the_order_of_the_games_of_a_period_has_no_effect_on_elo() -> None:
    games = played()
    before = {"a": 1600.0, "b": 1450.0}
    shuffled = Random(1).sample(games, len(games))
    assert elo(games, before) == pytest.approx(elo(shuffled, before))


def test_elo_moves_points_from_one_player_to_another() -> None:
    after = elo(played(), {"a": 1700.0, "b": 1500.0, "c": 1500.0, "d": 1500.0})
    assert sum(after.values()) == pytest.approx(6200.0)


def test_a_win_between_equals_moves_half_of_k() -> None:
    assert elo([Game("a", "b", 1.0)]) == {"a": BASE + 16, "b": BASE - 16}


def test_a_rating_period_keeps_who_does_not_play() -> None:
    assert elo([Game("a", "b", 0.5)], {"z": 1234.0})["z"] == 1234.0


def test_bradley_terry_orders_players_by_strength_with_intervals() -> None:
    ratings = bradley_terry(played(games=600))
    assert sorted(ratings, key=lambda player: -ratings[player].value) == ["a", "b", "c", "d"]
    assert all(rating.low < rating.value < rating.high for rating in ratings.values())
    assert sum(rating.value for rating in ratings.values()) == pytest.approx(4 * BASE)


def test_more_games_make_narrower_intervals() -> None:
    few, many = bradley_terry(played()), bradley_terry(played() * 16)
    assert all(many[p].high - many[p].low < (few[p].high - few[p].low) / 2 for p in few)


def test_bradley_terry_agrees_with_the_odds_of_two_players() -> None:
    games = [Game("a", "b", 1.0)] * 3000 + [Game("a", "b", 0.0)] * 1000
    ratings = bradley_terry(games, prior=1e-3)
    assert ratings["a"].value - ratings["b"].value == pytest.approx(190.85, abs=0.5)
    # The standard error of the logarithm of the odds is sqrt(1/3000 + 1/1000); half is each one's.
    half = 1.96 * 173.72 * (1 / 3000 + 1 / 1000) ** 0.5 / 2
    assert ratings["a"].high - ratings["a"].value == pytest.approx(half, rel=0.01)
    assert ratings["a"].games == 4000


def test_bradley_terry_does_not_depend_on_the_order_of_games() -> None:
    games = played()
    assert bradley_terry(games) == bradley_terry(Random(5).sample(games, len(games)))


def test_an_undefeated_player_has_a_finite_rating() -> None:
    ratings = bradley_terry([Game("a", "b", 1.0)] * 10)
    assert 1500 < ratings["a"].value < ratings["a"].high < 4000


def test_no_games_give_no_ratings() -> None:
    assert bradley_terry([]) == {}
    assert elo([]) == {}
