"""What judges are asked, and what becomes of their answers; pure."""

import json

import pytest

from app.domain.evaluation import COMBINED, Evaluation
from app.domain.operator import Completion, Role
from app.domain.program import Program
from app.domain.prompting.judging import Judge, JudgedProgram, Judges, judge_prompts, judgement
from app.domain.prompting.rules import PromptRules

PROGRAM = Program("x = 1\n")
TWO = Judges((Judge("a", 3.0), Judge("b", 1.0)), weight=0.1)


def case(**scores: float) -> JudgedProgram:
    found = Evaluation(
        scores={PROGRAM.id: scores}, metrics={PROGRAM.id: {**scores, "seen": 2.0}}, verified=True
    )
    return JudgedProgram(PROGRAM, (found,), sample=9)


def told(*answers: object) -> list[Completion]:
    return [Completion(one if isinstance(one, str) else json.dumps(one)) for one in answers]


def test_every_judge_is_asked_by_name_about_the_program_and_what_it_measured():
    asked = judge_prompts(TWO, case(combined_score=0.5), PromptRules(), "Solve it.")

    assert [(one.role, one.model, one.sample) for one in asked] == [
        (Role.JUDGE, "a", 9),
        (Role.JUDGE, "b", 9),
    ]
    assert asked[0].system == "Solve it."
    assert "x = 1" in asked[0].user
    assert "combined_score 0.5" in asked[0].user
    assert '{"readability": 0.0' in asked[0].user


def test_a_template_of_ones_own_takes_its_place():
    rules = PromptRules(templates={"evaluation": "Rate: {current_program}"})

    assert judge_prompts(TWO, case(), rules, "")[0].user == "Rate: x = 1"


def test_a_combined_score_is_seven_tenths_the_evaluators_and_three_the_judges():
    replies = told({"clear": 1.0, "fast": 0.4}, {"clear": 0.2})

    found = judgement(TWO, case(combined_score=0.5), replies)

    clear, fast = (3 * 1.0 + 1 * 0.2) / 4, 0.4
    average = (clear + fast) / 2
    assert found.scores[PROGRAM.id] == {COMBINED: pytest.approx(0.7 * 0.5 + 0.3 * average)}
    assert found.metrics[PROGRAM.id] == {
        "llm_clear": pytest.approx(0.1 * clear),
        "llm_fast": pytest.approx(0.1 * fast),
        "llm_average": pytest.approx(0.1 * average),
        COMBINED: pytest.approx(0.7 * 0.5 + 0.3 * average),
    }
    assert found.verified


def test_without_a_combined_score_the_judges_are_cases_beside_the_others():
    found = judgement(TWO, case(speed=2.0), told({"clear": 1.0}, {"clear": 1.0}))

    assert found.scores[PROGRAM.id] == pytest.approx({"llm_clear": 0.1, "llm_average": 0.1})


@pytest.mark.parametrize(
    "text",
    [
        '{"clear": 0.5}',
        'Here you are:\n```json\n{"clear": 0.5}\n```\nGood luck!',
        '```\n{"clear": 0.5}\n```',
        'I think {"clear": 0.5} says it.',
        '<think>\nPerhaps {"clear": 0.9}? No.\n</think>\n{"clear": 0.5}',
        '<think>\n```json\n{"clear": 0.9}\n```\n</think>\n```json\r\n{"clear": 0.5}\r\n```',
    ],
)
def test_an_object_is_found_fenced_and_bare(text):
    found = judgement(Judges((Judge("a"),), 1.0), case(combined_score=1.0), told(text))

    assert found.metrics[PROGRAM.id]["llm_clear"] == 0.5


def test_texts_become_artifacts_and_truth_values_and_infinities_nothing():
    first = '{"why": "too long", "ok": true, "clear": 0.5, "odd": 1e999, "nan": NaN}'

    found = judgement(TWO, case(combined_score=1.0), told(first, {"why": "too short", "list": [1]}))

    assert dict(found.artifacts) == {"why": "too long", "why (b)": "too short"}
    assert set(found.metrics[PROGRAM.id]) == {"llm_clear", "llm_average", COMBINED}


def test_judges_that_cannot_be_read_change_nothing_and_are_named():
    found = judgement(TWO, case(combined_score=1.0), told("no idea", "{"))

    assert found.scores == {}
    assert found.failure is None
    assert "a, b" in found.artifacts["judges"]
