"""The operators of programs of several files."""

from dataclasses import replace

import pytest

from app.config.layers import UsageError
from app.config.mix import WITH_A_MODEL, one_function, operators, require_function
from app.config.settings import RunSettings
from app.domain.operators import operators as every_operator
from app.domain.problem import Problem
from app.domain.program import Program
from tests.engine.toy import problem

FILES = {"a.py": "def first(x):\n    return x\n", "b.json": "{}\n"}


@pytest.fixture
def several() -> Problem:
    return replace(problem(), seeds=(Program.of_files(FILES),))


def test_no_function_of_several_files_is_the_one_unless_it_is_named(several: Problem) -> None:
    assert one_function(several, "") == ""
    assert one_function(several, "first") == "first"


def test_a_model_is_not_asked_to_complete_a_file_that_may_have_no_function(
    several: Problem,
) -> None:
    settings = RunSettings.model_validate({"llm": {"model": "m"}})
    assert operators(settings, several, every_operator(lambda _: ())) == WITH_A_MODEL


def test_a_function_that_no_file_defines_is_refused(several: Problem) -> None:
    require_function(several, "first")
    with pytest.raises(UsageError, match="does not say which function"):
        require_function(several, "second")
