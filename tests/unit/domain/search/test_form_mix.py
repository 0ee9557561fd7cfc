"""Which form a model is asked in, by the children that were measured before."""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from app.domain.search.form_mix import KEPT, draw_form, suggested_weights
from app.domain.search.model_mix import Written

DRAWS = 2000
FORMS = ("diff", "function", "rewrite")
WEIGHTS = {"diff": 0.6, "rewrite": 0.2, "function": 0.1, "mend": 0.1}


def measured(children: int, gains: int, tokens: int = 500) -> Written:
    return Written(children, gains, completion_tokens=tokens * children)


def shares(written: Mapping[str, Written], first: str = "diff") -> dict[str, float]:
    drawn = Counter(
        draw_form(WEIGHTS, FORMS, written, first, Random(f"{n}/form")) for n in range(DRAWS)
    )
    return {name: drawn[name] / DRAWS for name in WEIGHTS}


def test_an_operator_that_is_no_form_stays() -> None:
    assert shares({"rewrite": measured(50, 50)}, first="mend")["mend"] == 1.0


def test_without_a_settled_child_forms_are_drawn_by_weight() -> None:
    drawn = shares({})

    assert drawn["diff"] == pytest.approx(6 / 9, abs=0.03)
    assert drawn["mend"] == 0.0


def test_a_form_whose_replies_fail_gives_way_after_a_few_failures() -> None:
    drawn = shares({"diff": measured(8, 0), "rewrite": measured(2, 1), "function": measured(2, 2)})

    assert drawn["diff"] < 0.2


def test_of_two_forms_that_run_as_often_the_cheaper_is_drawn() -> None:
    dear, cheap = measured(40, 20, tokens=2000), measured(40, 20, tokens=200)

    drawn = shares({"diff": measured(40, 0), "rewrite": dear, "function": cheap})

    assert drawn["function"] > 0.8


def test_one_form_alone_is_drawn_whatever_came_of_it() -> None:
    assert draw_form({"diff": 1.0}, FORMS, {"diff": measured(9, 0)}, "diff", Random(1)) == "diff"


def test_earlier_runs_raise_the_weight_of_the_form_whose_children_ran() -> None:
    suggested = suggested_weights(
        WEIGHTS, FORMS, {"diff": measured(60, 2), "function": measured(60, 50)}
    )

    assert suggested["function"] > 3 * suggested["diff"]
    assert sum(suggested.values()) == pytest.approx(sum(WEIGHTS.values()))
    assert suggested["mend"] == WEIGHTS["mend"]
    assert suggested["diff"] >= KEPT * WEIGHTS["diff"]


@pytest.mark.parametrize("written", [{}, {"complete": measured(9, 9)}, {"diff": measured(9, 0)}])
def test_weights_stay_where_earlier_runs_say_nothing(written: Mapping[str, Written]) -> None:
    suggested = suggested_weights(WEIGHTS, FORMS, written)

    assert suggested == pytest.approx(WEIGHTS)
