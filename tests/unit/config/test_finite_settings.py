"""Settings that are no finite numbers, or so large that their sums are none, are refused."""

from collections.abc import Iterator
from typing import get_args

import pytest

from app.adapters.tuning.cma import ask
from app.config.layers import UsageError, from_assignments
from app.config.mix import operators
from app.config.recipes import with_parameters
from app.config.resolve import resolved
from app.config.section import fields_of
from app.config.settings import RunSettings
from app.domain.operators import operators as every_operator
from app.domain.search.gates import gate
from app.domain.search.recipes import RECIPES
from tests.engine.toy import problem


@pytest.mark.parametrize(
    "assignment",
    [
        *("search.stop_fitness=.inf", "search.gates=[.inf]", "search.gates=[.nan]"),
        *("budget.cost_usd=.inf", "budget.wall_seconds=.nan", "llm.feedback_weight=1e308"),
        *("llm.usd_per_million_prompt_tokens=1e308", "search.operators={tune: .inf}"),
        *("queue.weight=1e308", "llm.models=[{name: a, weight: 1e308}, {name: b}]"),
    ],
)
def test_a_number_beyond_what_can_be_summed_is_refused(assignment: str):
    with pytest.raises(UsageError) as refused:
        resolved([from_assignments([assignment])], {})

    assert assignment.partition("=")[0].partition("[")[0] in str(refused.value)


def test_a_weight_of_an_operator_beyond_what_can_be_summed_is_refused():
    settings = resolved([from_assignments(["search.operators={tune: 1.0e+308}"])], {}).settings

    with pytest.raises(UsageError, match=r"1,000,000,000 \(1e\+308\)"):
        operators(settings, problem(), {"tune": every_operator(ask)["tune"]})


def test_a_parameter_of_a_recipe_is_finite():
    with pytest.raises(ValueError, match="deadline_seconds must be finite, not inf"):
        with_parameters(RECIPES["beam"], {}, {"deadline_seconds": "inf"})


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", float("inf")])
def test_a_gate_is_a_finite_number(text: str | float):
    with pytest.raises(ValueError, match="a gate is a number"):
        gate(text)


def _integers(section: type, prefix: str = "") -> Iterator[str]:
    """Returns the dotted keys of settings that may be integers, without those in lists."""
    for name, field in fields_of(section).items():
        kind = field.annotation
        if int in (kind, *get_args(kind)):
            yield f"{prefix}{name}"
        if isinstance(kind, type) and "__pydantic_fields__" in vars(kind):
            yield from _integers(kind, f"{prefix}{name}.")


@pytest.mark.parametrize(
    "assignment",
    [
        *(f"{setting}=1e25" for setting in _integers(RunSettings)),
        *("llm.models=[{name: a, retries: 1e25}]", "llm.roles.judge.max_tokens=1e25"),
    ],
)
def test_an_integer_that_no_column_of_the_ledger_holds_is_refused(assignment: str):
    with pytest.raises(UsageError) as refused:
        resolved([from_assignments([assignment])], {})

    assert assignment.partition("=")[0] in str(refused.value)


def test_an_integer_of_a_recipe_is_one_that_the_ledger_holds():
    with pytest.raises(ValueError, match="entrants must be at most"):
        with_parameters(RECIPES["tournament"], {}, {"entrants": 10**25})
