"""Pairings of games, and ratings as folds over them."""

from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.evaluation import Evaluation, Trial
from app.domain.games import (
    BASE,
    Game,
    against,
    bracket,
    bradley_terry,
    elo,
    pairings,
    rounds_won,
)


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


def ended(trial: Trial, score: float) -> Evaluation:
    first, second = trial.players
    return Evaluation(scores={first: {"game": score}, second: {"game": 1.0 - score}})


def eliminated(players: list[str], games: int, rng: Random) -> dict[Trial, Evaluation | None]:
    """Plays a bracket to its end, with random results in random order; checks what is known."""
    known: dict[Trial, Evaluation | None] = {}
    while True:
        trials = bracket("match", players, games, known)
        assert trials[: len(known)] == tuple(known)
        known |= {trial: known.get(trial) for trial in trials}
        open_games = [trial for trial, evaluation in known.items() if evaluation is None]
        if not open_games:
            return known
        for trial in rng.sample(open_games, len(open_games)):
            assert bracket("match", players, games, known) == tuple(known)
            known[trial] = ended(trial, rng.choice((0.0, 0.5, 1.0)))


@given(n=st.integers(1, 19), games=st.integers(1, 2), seed=st.integers(0, 2**16))
def test_a_bracket_eliminates_one_player_in_each_match(n: int, games: int, seed: int) -> None:
    players = [f"p{rank:02}" for rank in range(n)]
    known = eliminated(players, games, Random(seed))

    pairs = list(dict.fromkeys(frozenset(trial.players) for trial in known))
    assert len(pairs) == n - 1
    assert len(known) == 2 * games * (n - 1)
    assert len({(trial.players, trial.cases) for trial in known}) == len(known)
    if n == 1:
        return
    rounds = (n - 1).bit_length()
    shares = {player: rounds_won("match", player, games, known) for player in players}
    best = [1.0, (rounds - 1) / rounds]
    assert sorted(shares.values(), reverse=True)[:2] == best  # type: ignore[type-var]
    finalists = {player for player, share in shares.items() if share in best}
    assert finalists == pairs[-1]
    lost = [player for player, share in shares.items() if share != 1.0]
    assert len(lost) == n - 1
    meetings = [index for index, pair in enumerate(pairs) if pair == {"p00", "p01"}]
    assert meetings in ([], [n - 2]), "the two highest players meet in the final alone"


@given(n=st.integers(2, 19), seed=st.integers(0, 2**16))
def test_the_stronger_wins_a_bracket_and_the_next_two_meet_in_its_final(n: int, seed: int) -> None:
    players = [f"p{rank:02}" for rank in range(n)]
    known: dict[Trial, Evaluation | None] = {}
    while len(trials := bracket("match", players, 1, known)) > len(known):
        known = {
            trial: ended(trial, float(trial.players[0] < trial.players[1])) for trial in trials
        }
    assert set(trials[-1].players) == {"p00", "p01"}
    assert rounds_won("match", "p00", 1, known) == 1.0


def test_a_match_of_equal_points_is_won_by_the_higher_player() -> None:
    trials = bracket("match", ("a", "b", "c", "d"), 1, {})
    draws: dict[Trial, Evaluation | None] = {trial: ended(trial, 0.5) for trial in trials}
    assert [trial.players for trial in trials] == [("a", "d"), ("d", "a"), ("b", "c"), ("c", "b")]
    final = bracket("match", ("a", "b", "c", "d"), 1, draws)[4:]
    assert [(trial.players, trial.cases) for trial in final] == [
        (("a", "b"), ("2",)),
        (("b", "a"), ("3",)),
    ]


def test_who_plays_no_game_has_won_no_share_of_the_rounds() -> None:
    assert bracket("match", ("a",), 1, {}) == ()
    assert rounds_won("match", "a", 1, {}) is None


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
