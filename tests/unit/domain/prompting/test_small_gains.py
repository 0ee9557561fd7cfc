"""Scores in prompts: programs whose fitness differs a little have texts that differ."""

from app.domain.operator import Brief, Draft, ProgramRecord
from app.domain.program import Program
from app.domain.prompting.prompts import rewrite_prompt

PARENT, OTHER, CHILD = Program("x = 1\n"), Program("x = 2\n"), Program("x = 3\n")


def test_a_small_gain_is_seen_by_the_model() -> None:
    brief = Brief(
        "Improve x.",
        "python",
        (Draft(4, 0, 0, 1, (PARENT.id,), (OTHER.id,)),),
        {PARENT.id: ProgramRecord(PARENT, 2.635), OTHER.id: ProgramRecord(OTHER, 2.6350000004)},
        siblings=(ProgramRecord(CHILD, 2.6350000002),),
    )

    user = rewrite_prompt(brief, brief.drafts[0]).user

    assert "better: fitness 2.635 to 2.6350000002" in user
    assert "A score of 2.6350000004 is known to be possible." in user
