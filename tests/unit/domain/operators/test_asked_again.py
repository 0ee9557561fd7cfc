"""Replies that make nothing new: another is asked for, at a higher temperature."""

from dataclasses import replace

import pytest

from app.adapters.model.providers.scripted import ScriptedModel
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Brief, Offspring, Prompt
from app.domain.operators.rewrite import REWRITE
from app.domain.program import Program, fingerprint
from app.domain.prompting.directions import PACKAGED

from .test_diff_and_rewrite import BRIEF, ONE, held

BRIEF_OF_ONE = replace(BRIEF, drafts=BRIEF.drafts[:1], repair_turns=1)


@pytest.mark.parametrize(
    ("first", "brief"),
    [
        ("x = 1", BRIEF_OF_ONE),
        ("x = 7", replace(BRIEF_OF_ONE, taken=frozenset((fingerprint(Program("x  =  7\n")),)))),
    ],
    ids=["the parent", "a program of the run"],
)
def test_another_reply_is_asked_for_where_one_makes_nothing_new(first: str, brief: Brief) -> None:
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        prompts.append(prompt)
        return f"```python\n{first if len(prompts) == 1 else 'x = 9'}\n```"

    [child] = held(REWRITE, ScriptedModel(answer), brief)

    one, again = prompts
    assert again.user.startswith(one.user)
    assert any(direction.text in again.user for direction in PACKAGED)
    assert first not in again.user.removeprefix(one.user), "a quotation would be repeated"
    assert one.warmer == 0.0 < again.warmer
    assert isinstance(child, Offspring)
    assert child.program.source == "x = 9\n"


def test_a_second_reply_that_makes_nothing_new_either_is_the_result() -> None:
    [child] = held(REWRITE, ScriptedModel(lambda _: f"```python\n{ONE.source}```"), BRIEF_OF_ONE)

    assert isinstance(child, Failure)
    assert child.kind is FailureKind.UNCHANGED


def test_children_of_one_cohort_differ() -> None:
    brief = replace(BRIEF, repair_turns=1)
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        prompts.append(prompt)
        return f"```python\nx = {7 if len(prompts) <= len(brief.drafts) else 8}\n```"

    children = held(REWRITE, ScriptedModel(answer), brief)

    made = [child.program.source for child in children if isinstance(child, Offspring)]
    assert sorted(made) == ["x = 7\n", "x = 8\n"]
