"""Fitness and signature: folds of evaluations."""

import pytest

from app.domain.evaluation import Evaluation, fitness, signature


def test_a_score_that_is_not_finite_never_reaches_an_evaluation() -> None:
    with pytest.raises(ValueError, match="not finite"):
        Evaluation(scores={"p": {"case": float("nan")}})


def test_fitness_is_the_mean_over_cases() -> None:
    assert fitness("p", [Evaluation(scores={"p": {"a": 1.0, "b": 2.0}})]) == 1.5


def test_a_combined_score_stands_for_all_others() -> None:
    assert fitness("p", [Evaluation(scores={"p": {"a": 1.0, "combined_score": 7.0}})]) == 7.0


def test_a_later_stage_overrides_an_earlier_one() -> None:
    stages = [
        Evaluation(scores={"p": {"combined_score": 1.0}}),
        Evaluation(scores={"p": {"combined_score": 2.0}}),
    ]
    assert fitness("p", stages) == 2.0


def test_a_player_without_scores_has_no_fitness() -> None:
    assert fitness("p", [Evaluation(scores={"q": {"a": 1.0}})]) is None


def test_equal_signatures_do_not_depend_on_the_order_of_cases() -> None:
    one = Evaluation(scores={"p": {"b": 2.0, "a": 1.0}})
    two = Evaluation(scores={"p": {"a": 1.0, "b": 2.0}})
    assert signature("p", [one]) == signature("p", [two]) == (1.0, 2.0)
