"""The operator `mend`: which part of a failed program the model writes anew."""

from dataclasses import replace

import pytest

from app.adapters.model.providers.scripted import ScriptedModel
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Brief, Draft, FailedChild, Offspring, ProgramRecord, Prompt
from app.domain.operators.mend import MEND, failing_definition
from app.domain.program import Program

from .test_diff_and_rewrite import held

PARENT = Program("def f(x):\n    return x\n\n\ndef g(x):\n    return f(x)\n")
BROKEN = Program("def f(x):\n    return y\n\n\ndef g(x):\n    return f(x) + 1\n")
TRACEBACK = "NameError: name 'y' is not defined\nprogram line 6, in g\nprogram line 2, in f"
FAILED = FailedChild(Failure(FailureKind.RUNTIME, TRACEBACK), BROKEN, "Returns y.")
BRIEF = Brief(
    "Improve f.",
    "python",
    (Draft(4, 0, 0, 1, (PARENT.id,), (BROKEN.id,)),),
    {PARENT.id: ProgramRecord(PARENT, 1.0), BROKEN.id: ProgramRecord(BROKEN)},
    failed=FAILED,
    seed="s",
)


def test_the_model_writes_the_innermost_failing_function_anew() -> None:
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        prompts.append(prompt)
        return "```python\ndef f(x):\n    return 2 * x\n```"

    [child] = held(MEND, ScriptedModel(answer), BRIEF)

    assert "Write `f` without the\nerror" in prompts[0].user
    assert "line 2: return y" in prompts[0].user
    assert prompts[0].form is not None
    assert prompts[0].form.opening == "```python\ndef f(x):\n"
    assert isinstance(child, Offspring)
    assert child.program.source == BROKEN.source.replace("return y", "return 2 * x")


@pytest.mark.parametrize("detail", ["it stopped", "program line 99, in h"])
def test_a_program_is_edited_where_no_failing_function_is_known(detail: str) -> None:
    prompts: list[Prompt] = []
    failure = Failure(FailureKind.RUNTIME, detail)
    brief = replace(BRIEF, failed=replace(FAILED, failure=failure))

    held(MEND, ScriptedModel(lambda prompt: prompts.append(prompt) or ""), brief)

    assert "<<<<<<< SEARCH" in prompts[0].user
    assert prompts[0].form is not None
    assert prompts[0].form.grammar


def test_the_only_function_is_taken_and_a_long_one_is_not() -> None:
    silent = Failure(FailureKind.TIMEOUT, "it was not done in time")
    only = Program("def f(x):\n    return y\n")
    long = Program("def f(x):\n" + "    x += 1\n" * 80 + "    return y\n")

    found = failing_definition(only, silent)

    assert found is not None
    assert found.name == "f"
    assert failing_definition(long, silent) is None


def test_without_a_failed_program_a_function_of_the_parent_is_written_anew() -> None:
    prompts: list[Prompt] = []

    held(MEND, ScriptedModel(lambda p: prompts.append(p) or ""), replace(BRIEF, failed=None))

    assert "Write a better version of `" in prompts[0].user
