"""Replies that make nothing new: another is asked for, at a higher temperature."""

from dataclasses import replace

import pytest

from app.adapters.model.providers.scripted import ScriptedModel
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Ancestry, Brief, FailedChild, Offspring, ProgramRecord, Prompt
from app.domain.operators.rewrite import REWRITE
from app.domain.program import Program
from app.domain.prompting.directions import PACKAGED

from .test_diff_and_rewrite import BRIEF, ONE, held

BRIEF_OF_ONE = replace(BRIEF, drafts=BRIEF.drafts[:1], repair_turns=1)
TRIED = Program("x = 7\n")
FAILED = FailedChild(Failure(FailureKind.RUNTIME, "it stopped"), TRIED)


@pytest.mark.parametrize(
    ("first", "brief"),
    [
        ("x = 1", BRIEF_OF_ONE),
        ("x = 2\ny = 1", BRIEF_OF_ONE),
        ("x = 7", replace(BRIEF_OF_ONE, siblings=(ProgramRecord(TRIED, 1.0),))),
        ("x = 7", replace(BRIEF_OF_ONE, ancestry=Ancestry(failures=(FAILED,)))),
    ],
    ids=["the parent", "an inspiration", "a child that was measured", "a child that failed"],
)
def test_a_program_of_the_brief_is_asked_for_once_more(first: str, brief: Brief) -> None:
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
