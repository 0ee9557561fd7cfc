"""Fitness, signature, fingerprints: folds of values."""

import pytest

from app.domain.evaluation import Evaluation, fitness, signature
from app.domain.events import Event, EventKind, stalled_for
from app.domain.program import Program, fingerprint


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


def test_layout_comments_and_docstrings_do_not_make_a_program_new() -> None:
    plain = Program("def f(x):\n    return x + 1\n")
    dressed = Program('def f(x):\n    """Adds."""\n    # one\n    return (x+1)\n')
    assert fingerprint(plain) == fingerprint(dressed)
    assert fingerprint(plain) != fingerprint(Program("def f(x):\n    return x + 2\n"))


def test_source_that_does_not_parse_still_has_a_fingerprint() -> None:
    assert fingerprint(Program("def f(:")) == fingerprint(Program("def  f(:\n"))
    assert fingerprint(Program("(" * 5000))


def improved(seq: int, fitness: float, settled: int) -> Event:
    return Event(seq, EventKind.IMPROVED, 0.0, {"fitness": fitness, "settled": settled})


def test_small_rises_do_not_reset_patience_until_they_add_up() -> None:
    events = [improved(1, 1.0, 0), improved(2, 1.0004, 10), improved(3, 1.0008, 20)]
    assert stalled_for(events, 30, 0.001) == 30
    assert stalled_for([*events, improved(4, 1.0012, 25)], 30, 0.001) == 5
