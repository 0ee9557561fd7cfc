"""Prompts to judges, and the evaluation that their replies make."""

import json

import pytest

from app.domain.evaluation import COMBINED, Evaluation
from app.domain.operator import Completion, Role
from app.domain.program import Program
from app.domain.prompting.judging import Judge, JudgedProgram, Judges, judge_prompts, judgement
from app.domain.prompting.rules import PromptRules

PROGRAM = Program("x = 1\n")
TWO = Judges((Judge("a", 3.0), Judge("b", 1.0)), weight=0.1)


def judged_program(**scores: float) -> JudgedProgram:
    evaluation = Evaluation(
        scores={PROGRAM.id: scores}, metrics={PROGRAM.id: {**scores, "seen": 2.0}}, verified=True
    )
    return JudgedProgram(PROGRAM, (evaluation,), sample=9)


def replies_of(*texts: object) -> list[Completion]:
    return [Completion(text if isinstance(text, str) else json.dumps(text)) for text in texts]


def test_every_judge_gets_a_prompt_with_the_program_and_its_metrics():
    prompts = judge_prompts(TWO, judged_program(combined_score=0.5), PromptRules(), "Solve it.")

    assert [(one.role, one.model, one.sample) for one in prompts] == [
        (Role.JUDGE, "a", 9),
        (Role.JUDGE, "b", 9),
    ]
    assert prompts[0].system == "Solve it."
    assert "x = 1" in prompts[0].user
    assert "combined_score 0.5" in prompts[0].user
    assert '{"readability": 0.0' in prompts[0].user


def test_a_custom_template_replaces_the_packaged_template():
    rules = PromptRules(templates={"evaluation": "Rate: {current_program}"})

    assert judge_prompts(TWO, judged_program(), rules, "")[0].user == "Rate: x = 1"


def test_a_combined_score_is_seven_tenths_evaluator_and_three_tenths_judges():
    replies = replies_of({"clear": 1.0, "fast": 0.4}, {"clear": 0.2})

    evaluation = judgement(TWO, judged_program(combined_score=0.5), replies)

    clear, fast = (3 * 1.0 + 1 * 0.2) / 4, 0.4
    average = (clear + fast) / 2
    assert evaluation.scores[PROGRAM.id] == {COMBINED: pytest.approx(0.7 * 0.5 + 0.3 * average)}
    assert evaluation.metrics[PROGRAM.id] == {
        "llm_clear": pytest.approx(0.1 * clear),
        "llm_fast": pytest.approx(0.1 * fast),
        "llm_average": pytest.approx(0.1 * average),
        COMBINED: pytest.approx(0.7 * 0.5 + 0.3 * average),
    }
    assert evaluation.verified


def test_without_a_combined_score_the_judges_add_cases():
    evaluation = judgement(
        TWO, judged_program(speed=2.0), replies_of({"clear": 1.0}, {"clear": 1.0})
    )

    assert evaluation.scores[PROGRAM.id] == pytest.approx({"llm_clear": 0.1, "llm_average": 0.1})


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
    evaluation = judgement(
        Judges((Judge("a"),), 1.0), judged_program(combined_score=1.0), replies_of(text)
    )

    assert evaluation.metrics[PROGRAM.id]["llm_clear"] == 0.5


ODD = '{"why": "too long", "ok": true, "clear": 0.5, "odd": 1e999, "nan": NaN}'


def test_texts_of_judges_become_artifacts():
    replies = replies_of(ODD, {"why": "too short", "list": [1]})

    evaluation = judgement(TWO, judged_program(combined_score=1.0), replies)

    assert dict(evaluation.artifacts) == {"why": "too long", "why (b)": "too short"}


def test_truth_values_and_infinite_numbers_of_judges_are_no_scores():
    replies = replies_of(ODD, {"why": "too short", "list": [1]})

    evaluation = judgement(TWO, judged_program(combined_score=1.0), replies)

    assert set(evaluation.metrics[PROGRAM.id]) == {"llm_clear", "llm_average", COMBINED}


def test_unreadable_judges_leave_the_fitness_and_are_named():
    evaluation = judgement(TWO, judged_program(combined_score=1.0), replies_of("no idea", "{"))

    assert evaluation.scores == {}
    assert evaluation.failure is None
    assert "a, b" in evaluation.artifacts["judges"]
