"""The operators `diff`, `rewrite` and `seed`."""

from dataclasses import replace

import pytest

from app.adapters.model.providers.scripted import ScriptedModel
from app.adapters.tuning.cma import ask
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Brief, Child, Draft, Offspring, Operator, ProgramRecord, Prompt
from app.domain.operators import operators
from app.domain.operators.diff import DIFF
from app.domain.operators.rewrite import REWRITE
from app.domain.operators.seed import SEED
from app.domain.program import Program

ONE, TWO = Program("x = 1\n"), Program("x = 2\ny = 1\n")
BRIEF = Brief(
    "Improve x.",
    "python",
    (Draft(4, 0, 0, 1, (ONE.id,), (TWO.id,)), Draft(5, 0, 0, 1, (TWO.id,))),
    {ONE.id: ProgramRecord(ONE, 1.0), TWO.id: ProgramRecord(TWO, 2.0)},
    seed="s",
)


def held(operator: Operator, model: ScriptedModel, brief: Brief = BRIEF) -> list[Child]:
    """Lets an operator converse with a model to the end."""
    conversation = operator.converse(brief)
    try:
        prompts = next(conversation)
        while True:
            prompts = conversation.send(model.complete(prompts))
    except StopIteration as ended:
        children: list[Child] = ended.value
        return children


def test_rewrite_sends_one_prompt_for_each_draft() -> None:
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        prompts.append(prompt)
        return f"```python\nx = {prompt.sample}\n```"

    children = held(REWRITE, ScriptedModel(answer))

    assert [prompt.sample for prompt in prompts] == [4, 5]
    assert [c.program.source for c in children if isinstance(c, Offspring)] == [
        "x = 4\n",
        "x = 5\n",
    ]


def test_diff_applies_each_reply_to_its_own_parent() -> None:
    reply = "<<<<<<< SEARCH\ny = 1\n=======\ny = 3\n>>>>>>> REPLACE"

    first, second = held(DIFF, ScriptedModel(lambda _: reply))

    assert isinstance(first, Failure)
    assert first.kind is FailureKind.BAD_EDIT
    assert isinstance(second, Offspring)
    assert second.program.source == "x = 2\ny = 3\n"
    assert second.changes == "Change 1: 'y = 1' to 'y = 3'"


def test_the_parent_and_the_inspirations_are_in_the_prompt() -> None:
    prompts: list[Prompt] = []
    held(DIFF, ScriptedModel(lambda prompt: prompts.append(prompt) or ""))

    assert "x = 1" in prompts[0].user
    assert "x = 2\ny = 1" in prompts[0].user


@pytest.mark.parametrize("operator", [REWRITE, DIFF])
def test_an_unusable_reply_is_a_failure_of_its_draft_alone(operator: Operator) -> None:
    children = held(operator, ScriptedModel(lambda _: "No, thank you."))

    assert [c.kind for c in children if isinstance(c, Failure)] == [FailureKind.NO_CODE] * 2


def test_seeding_sends_no_prompt_and_returns_the_parents() -> None:
    conversation = SEED.converse(BRIEF)
    with pytest.raises(StopIteration) as ended:
        next(conversation)

    assert ended.value.value == [Offspring(ONE), Offspring(TWO)]


def test_every_operator_is_registered_by_its_name() -> None:
    known = operators(ask)

    assert set(known) == {
        "seed",
        "rewrite",
        "diff",
        "function",
        "complete",
        "mend",
        "directed",
        "mutate",
        "agent",
        "search",
        "tune",
    }
    assert all(operator.name == name for name, operator in known.items())
    assert {name for name, operator in known.items() if operator.asks_model} == {
        "rewrite",
        "diff",
        "function",
        "complete",
        "mend",
        "directed",
    }


def test_a_child_that_is_certain_to_fail_is_asked_for_once_more_with_its_faults() -> None:
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        prompts.append(prompt)
        text = "x = np.pi" if len(prompts) <= 2 else "import numpy as np\nx = np.pi"
        return f"```python\n{text}\n```"

    children = held(REWRITE, ScriptedModel(answer), replace(BRIEF, repair_turns=1))

    assert len(prompts) == 4
    assert "line 1: the name `np` is used, but never defined or imported" in prompts[2].user
    sources = [c.program.source for c in children if isinstance(c, Offspring)]
    assert sources == ["import numpy as np\nx = np.pi\n"] * 2


def test_a_child_that_is_certain_to_fail_stays_where_the_second_reply_is_unusable() -> None:
    replies = iter(["```python\nx = np.pi\n```"] * 2 + ["I cannot say."] * 2)

    children = held(REWRITE, ScriptedModel(lambda _: next(replies)), replace(BRIEF, repair_turns=1))

    sources = [c.program.source for c in children if isinstance(c, Offspring)]
    assert sources == ["x = np.pi\n"] * 2
