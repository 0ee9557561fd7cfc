from dataclasses import replace
from typing import Any

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import (
    Ancestry,
    Brief,
    Completion,
    Draft,
    FailedChild,
    ProgramRecord,
    Prompt,
    Role,
)
from app.domain.operators.diff import DIFF
from app.domain.program import Program
from app.domain.prompting.prompts import diff_prompt, repair_prompt, rewrite_prompt
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.templates import check_templates
from app.domain.prompting.tokens import estimated
from app.domain.secrets import redacted

PARENT = ProgramRecord(
    Program("def f():\n    return 1\n"),
    0.5,
    metrics={"speed": 2.0, "size": 3.25},
    features={"complexity": 40.0},
    artifacts={"stderr": "warning: slow", "trace": "line 3"},
)
FITTER = ProgramRecord(Program("def f():\n    return 'fitter'\n"), 0.9, metrics={"speed": 9.0})
WEAKER = ProgramRecord(Program("def f():\n    return 'weaker'\n"), 0.1)
UNMEASURED = ProgramRecord(Program("def f():\n    return 'unmeasured'\n"))
CHILD = ProgramRecord(Program("def f():\n    return 2\n"), 0.75, changes="Change 1: '1' to '2'")

NO_ANCESTRY = Ancestry()


def brief_of(
    *inspirations: ProgramRecord,
    parent: ProgramRecord = PARENT,
    instructions: str = "Make f larger.",
    siblings: tuple[ProgramRecord, ...] = (),
    ancestry: Ancestry = NO_ANCESTRY,
    ordinal: int = 7,
    by_task: bool = False,
    **settings: Any,
) -> Brief:
    ids = tuple(known.program.id for known in inspirations)
    draft = Draft(ordinal, 0, 0, 1, (parent.program.id,), ids)
    known = {one.program.id: one for one in (parent, *inspirations)}
    return Brief(
        instructions,
        "python",
        (draft,),
        known,
        siblings=siblings,
        ancestry=ancestry,
        prompts=PromptRules(**{"num_top_programs": 3, "num_diverse_programs": 2, **settings}),
        by_task=by_task,
        seed="s",
    )


def prompt_of(brief: Brief) -> Prompt:
    return diff_prompt(brief, brief.drafts[0])


def test_the_instructions_are_the_system_text() -> None:
    assert prompt_of(brief_of()).system == "Make f larger."


def test_without_instructions_the_packaged_system_text_stands() -> None:
    assert "expert programmer" in prompt_of(brief_of(instructions="")).system


def test_the_system_message_may_be_a_text_or_the_name_of_a_template() -> None:
    assert prompt_of(brief_of(system_message="Be {brief}.")).system == "Be {brief}."
    named = brief_of(system_message="mine", templates={"mine": "My own text."})
    assert prompt_of(named).system == "My own text."
    assert prompt_of(brief_of(instructions="mine", templates={"mine": "So."})).system == "So."


def test_the_sample_is_the_ordinal_of_the_proposal() -> None:
    assert prompt_of(brief_of()).sample == 7


def test_the_parent_is_shown_with_all_that_was_measured() -> None:
    user = prompt_of(brief_of()).user

    assert "```python\ndef f():\n    return 1\n```" in user
    assert "Score: 0.5 (higher is better)" in user
    assert "speed 2, size 3.25" in user
    assert "### stderr\n```\nwarning: slow\n```" in user


def test_fitter_programs_and_other_programs_have_headings_of_their_own() -> None:
    user = prompt_of(brief_of(WEAKER, FITTER, UNMEASURED, num_top_programs=1)).user

    top, others = user.index("# Other programs"), user.index("## Programs of other kinds")
    current = user.index("# The current program")
    assert top < user.index("'fitter'") < current < others < user.index("'weaker'")
    assert others < user.index("'unmeasured'")


def test_programs_are_shown_up_to_the_settings() -> None:
    user = prompt_of(brief_of(WEAKER, FITTER, num_top_programs=0, num_diverse_programs=0)).user

    assert "'fitter'" not in user
    assert "'weaker'" not in user


def test_earlier_children_of_the_parent_are_shown_with_their_outcome() -> None:
    user = prompt_of(brief_of(siblings=(CHILD,))).user

    assert "1. Change 1: '1' to '2'\n   Result: better: fitness 0.5 to 0.75" in user


def shared(one: str, other: str) -> str:
    """Returns the longest beginning of both."""
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return one if at is None else one[:at]


ELITES = tuple(
    ProgramRecord(Program(f"def f():\n    return {n}  # elite\n"), 0.9 - n / 100) for n in range(3)
)


def test_prompts_of_two_parents_are_equal_above_the_parent() -> None:
    one = prompt_of(brief_of(*ELITES, WEAKER, siblings=(CHILD,))).user
    other = prompt_of(brief_of(*ELITES, UNMEASURED, parent=CHILD, ordinal=9)).user

    both = shared(one, other)
    assert both == one[: one.index("# The current program")] + both[both.index("# The current") :]
    assert all(elite.program.source.strip() in both for elite in ELITES)


def test_prompts_of_one_parent_differ_in_the_tail_alone() -> None:
    ancestry = Ancestry((CHILD,))
    one = prompt_of(brief_of(*ELITES, WEAKER, ancestry=ancestry)).user
    other = prompt_of(
        brief_of(*ELITES, UNMEASURED, siblings=(CHILD,), ordinal=11, ancestry=ancestry)
    ).user

    both = shared(one, other)
    assert "warning: slow" in both
    assert "## Programs of other kinds" in both
    assert "'weaker'" not in both


def test_no_number_or_name_of_the_proposal_is_in_the_text() -> None:
    texts = {prompt_of(brief_of(*ELITES, ordinal=n)).user for n in (7, 123456789)}

    assert len(texts) == 1
    assert ELITES[0].program.id[:8] not in texts.pop()


def test_the_ancestry_shows_the_newest_change_first() -> None:
    grandparent = ProgramRecord(Program("x = 9\n"), 0.25, changes="Change 1: 'a' to 'b'")
    parent = ProgramRecord(PARENT.program, 0.5, changes="Change 1: 'b' to 'c'")
    user = prompt_of(brief_of(parent=parent, ancestry=Ancestry((grandparent,)))).user

    way = user.index("## Changes that led to it")
    assert way < user.index("- Score 0.5: Change 1: 'b'") < user.index("- Score 0.25: Change 1")


def test_inspirations_that_differ_from_the_parent_in_white_space_are_not_shown() -> None:
    twin = ProgramRecord(Program("def f():\n        return 1\n"), 0.7)
    user = prompt_of(brief_of(twin, WEAKER)).user

    assert "        return 1" not in user
    assert "'weaker'" in user


SECRET = "4242424242"
FAILED = FailedChild(
    Failure(
        FailureKind.RUNTIME,
        f"ValueError: the input was {SECRET}\nprogram line 2, in f: x = {SECRET}\n"
        f"evaluator line 9, in evaluate: expected {SECRET}",
    ),
    Program("def f():\n    return 1 / 0\n"),
    "Change 1: '1' to '1 / 0'",
    ("case 3",),
    {"stdout": SECRET, "stderr": SECRET, "failing_input": "n = 0"},
)


def test_a_failure_is_described_by_kind_exception_class_and_program_lines() -> None:
    user = prompt_of(brief_of(ancestry=Ancestry((), (FAILED,)))).user

    assert "1. Change 1: '1' to '1 / 0'\n   Failed (runtime): it raised an exception" in user
    assert "on case 3: ValueError\nline 2: return 1 / 0" in user
    assert "### failing_input\n```\nn = 0\n```" in user
    assert SECRET not in user


def test_the_message_of_a_failure_is_quoted_if_the_setting_allows_it() -> None:
    user = prompt_of(brief_of(ancestry=Ancestry((), (FAILED,)), failure_messages=True)).user

    assert f"ValueError: the input was {SECRET}" in user
    assert f"### stdout\n```\n{SECRET}" in user


@pytest.mark.parametrize(
    "detail",
    [
        f"E{SECRET}: x",
        f"Error\nprogram line 1, in f: {SECRET}\nprogram line {SECRET}, in g: x",
        f"{SECRET}",
        f"ValueError: program line 1, in {SECRET}: {SECRET}",
    ],
)
def test_a_program_cannot_put_text_into_the_report_of_its_failure(detail: str) -> None:
    failed = replace(FAILED, failure=Failure(FailureKind.RUNTIME, detail))

    assert SECRET not in prompt_of(brief_of(ancestry=Ancestry((), (failed,)))).user


def test_a_failed_reply_is_described_in_full() -> None:
    failed = FailedChild(Failure(FailureKind.BAD_EDIT, "Block 1 of 1 matches nowhere."))

    assert (
        "Block 1 of 1 matches nowhere."
        in prompt_of(brief_of(ancestry=Ancestry((), (failed,)))).user
    )


def test_equal_failures_are_shown_once() -> None:
    user = prompt_of(brief_of(ancestry=Ancestry((), (FAILED, FAILED)))).user

    assert user.count("runtime") == 1


def test_a_repair_prompt_begins_with_the_first_prompt_and_shows_the_failure() -> None:
    brief = brief_of()
    first = prompt_of(brief)
    fault = Failure(FailureKind.BAD_EDIT, "Block 1 of 1 matches nowhere.")

    again = repair_prompt(brief, first, Completion("<think>hm</think>\nmy blocks"), fault)

    assert again is not None
    assert again.user.startswith(first.user)
    assert "my blocks" in again.user
    assert "hm" not in again.user.removeprefix(first.user)
    assert "Block 1 of 1 matches nowhere." in again.user
    assert replace(again, user=first.user) == first  # the same role, model and draw are asked


def test_a_repair_quotes_a_long_reply_in_part() -> None:
    brief = brief_of()
    reply = Completion("a" * 50_000)
    again = repair_prompt(brief, prompt_of(brief), reply, Failure(FailureKind.NO_CODE, "None."))

    assert again is not None
    assert len(again.user) < len(prompt_of(brief).user) + 3_000


def repaired(room: int) -> tuple[Prompt, list[Prompt]]:
    """Returns a first prompt, and the repair prompt with space for so many tokens beside it."""
    within = estimated(prompt_of(brief_of()).system + prompt_of(brief_of()).user) + room
    brief = replace(brief_of(max_prompt_tokens=within), repair_turns=1)
    conversation = DIFF.converse(brief)
    [first] = next(conversation)
    try:
        return first, conversation.send([Completion("```python\n" + "word " * 2_000 + "\n```")])
    except StopIteration as ended:
        [child] = ended.value
        assert isinstance(child, Failure)
        return first, []


def test_a_repair_prompt_is_as_long_as_the_budget_of_tokens_allows() -> None:
    first, [long] = repaired(2_000)
    _, [short] = repaired(400)
    _, none = repaired(100)

    assert len(long.user) > len(short.user) > len(first.user)
    assert estimated(short.system + short.user) <= estimated(first.system + first.user) + 400
    assert not none


def test_diff_and_rewrite_request_their_own_form() -> None:
    brief = brief_of()
    rewrite = rewrite_prompt(brief, brief.drafts[0]).user

    assert "SEARCH" not in rewrite
    assert "complete new program in one ```python block" in rewrite


SCRATCH, REFINED = "Write a program for this problem from scratch", "Refine it: keep its idea"


def rewrite_of(brief: Brief, **changed: Any) -> str:
    """Returns the text that asks for the whole program of a changed draft."""
    draft = replace(brief.drafts[0], **changed)
    return rewrite_prompt(replace(brief, drafts=(draft,)), draft).user


def test_a_child_of_a_seed_without_inspirations_is_asked_for_from_scratch() -> None:
    brief = brief_of(by_task=True, siblings=(CHILD,))
    user = rewrite_of(brief)

    assert SCRATCH in user
    assert "```python\ndef f():\n    return 1\n```" in user
    assert "Change 1: '1' to '2'" in user
    assert SCRATCH not in rewrite_of(brief, generation=2)
    assert SCRATCH not in rewrite_of(brief_of(FITTER, by_task=True))


def test_a_child_by_the_refiner_is_asked_for_as_a_refinement() -> None:
    brief = brief_of(FITTER, by_task=True)
    user = rewrite_of(brief, role=Role.REFINER)

    assert REFINED in user
    assert "'fitter'" in user
    assert REFINED in rewrite_of(brief_of(by_task=True), role=Role.REFINER)
    assert REFINED not in rewrite_of(brief)


def test_only_some_recipes_ask_by_task() -> None:
    user = rewrite_of(brief_of(), role=Role.REFINER)

    assert SCRATCH not in rewrite_of(brief_of())
    assert REFINED not in user
    assert user == rewrite_of(brief_of())


@pytest.mark.parametrize("changed", [{}, {"role": Role.REFINER}], ids=["scratch", "refined"])
def test_a_replaced_rewrite_stands_for_every_task_without_a_replacement(
    changed: dict[str, Any],
) -> None:
    mine = {"full_rewrite_user": "Mine: {current_program}"}
    own = mine | {"scratch_user": "From nothing.", "refine_user": "Better."}

    assert rewrite_of(brief_of(by_task=True, templates=mine), **changed).startswith("Mine: def f")
    both = rewrite_of(brief_of(by_task=True, templates=own), **changed)
    assert both == ("Better." if changed else "From nothing.")


def test_an_artifact_is_cut_to_its_bound() -> None:
    parent = ProgramRecord(PARENT.program, 0.5, artifacts={"log": "x" * 20 + "y" * 100})
    user = prompt_of(
        brief_of(parent=parent, max_artifact_bytes=20, artifact_security_filter=False)
    ).user

    assert "x" * 20 + "\n... (cut)" in user
    assert "yy" not in user


def test_artifacts_are_not_shown_if_the_setting_excludes_them() -> None:
    assert "warning: slow" not in prompt_of(brief_of(include_artifacts=False)).user
    failed = brief_of(ancestry=Ancestry((), (FAILED,)), include_artifacts=False)
    assert "failing_input" not in prompt_of(failed).user


def test_secrets_are_quoted_only_where_the_setting_lets_them_through() -> None:
    failure = replace(FAILED.failure, detail="ValueError: password: hunter2")
    failed = replace(FAILED, failure=failure)
    parent = ProgramRecord(PARENT.program, 0.5, artifacts={"log": "token = hunter3"})

    def shown(**rules: bool) -> str:
        ancestry = Ancestry((), (failed,))
        brief = brief_of(parent=parent, ancestry=ancestry, failure_messages=True, **rules)
        return prompt_of(brief).user

    assert "hunter" not in shown()
    assert "hunter2" in shown(artifact_security_filter=False)
    assert "hunter3" in shown(artifact_security_filter=False)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("\x1b[31mred\x1b[0m", "\x1b"),
        ("token = hunter2", "hunter2"),
        ("PASSWORD: hunter2", "hunter2"),
        ("used sk-abcdefgh1234 here", "abcdefgh"),
        ("OPENAI_API_KEY=abc123", "abc123"),
        ("AWS_SECRET_ACCESS_KEY=wJal/K7+q", "wJal"),
        ('{"password": "hunter2 and more", "n": 3}', "more"),
        ("{'access_token': 'hunter2'}", "hunter2"),
        ("Authorization: Bearer abc.def-ghi", "abc.def"),
        ("postgres://user:hunter2@host/db", "hunter2"),
        ("github_pat_11ABCDEFG0abc", "11ABC"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN"),
        ("a" * 40, "aaaa"),
    ],
)
def test_text_that_looks_like_a_secret_is_removed(text: str, secret: str) -> None:
    assert secret not in redacted(text)


def test_ordinary_output_is_left_alone() -> None:
    text = (
        "Traceback: line 3, ValueError: 12 != 13\n"
        "tokens: 512, tokenizer: bpe, key = 3, a basic classification\n"
        "see https://example.org/a@b and {'keys': [1, 2]}"
    )

    assert redacted(text) == text


def test_a_long_prompt_loses_its_least_useful_items_first() -> None:
    def limited(tokens: int) -> Prompt:
        return prompt_of(
            brief_of(
                WEAKER, FITTER, siblings=(CHILD,), num_top_programs=1, max_prompt_tokens=tokens
            )
        )

    full = limited(100_000)
    shorter = limited(estimated(full.system + full.user) - 1)
    shortest = limited(10)

    assert full.left_out == ()
    assert "Left out" not in full.user
    assert shorter.left_out == ("inspiration 1",)
    assert "(Left out to keep this short: 1 inspiration.)" in shorter.user
    assert "'weaker'" not in shorter.user
    assert "'fitter'" in shorter.user
    assert shortest.left_out == (
        *("inspiration 1", "program 1", "attempt 1"),
        *("artifact stderr", "artifact trace"),
    )
    assert "2 artifacts" in shortest.user
    assert "return 1" in shortest.user


def test_braces_in_programs_and_artifacts_are_text() -> None:
    parent = ProgramRecord(Program("x = {'{a}': 1}\n"), 0.5, artifacts={"{k}": "{v}"})
    user = prompt_of(brief_of(ProgramRecord(Program("y = {b}\n"), 0.1), parent=parent)).user

    assert "x = {'{a}': 1}" in user
    assert "y = {b}" in user
    assert "{v}" in user


def test_a_template_can_be_replaced() -> None:
    mine = "{language}|{fitness_score}|{current_program}|{{literal}}"
    user = prompt_of(brief_of(templates={"diff_user": mine})).user

    assert user == "python|0.5|def f():\n    return 1|{literal}"


def test_variations_are_drawn_with_the_seed_of_the_brief() -> None:
    settings: dict[str, object] = {
        "templates": {"diff_user": "{greeting} {current_program}"},
        "template_variations": {"greeting": ["Hello.", "Good day.", "Greetings."]},
    }
    drawn = {prompt_of(brief_of(ordinal=n, **settings)).user.split(" def")[0] for n in range(40)}

    assert drawn == {"Hello.", "Good day.", "Greetings."}
    assert prompt_of(brief_of(**settings)) == prompt_of(brief_of(**settings))
    plain = prompt_of(brief_of(**settings, use_template_stochasticity=False)).user
    assert plain.startswith("Hello.")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"templates": {"diff_user": "{programme}"}}, "refers to {programme}; it is given"),
        ({"templates": {"top_program": "{current_program}"}}, "'top_program' refers to"),
        ({"templates": {"diff_user": "{language.__class__}"}}, "refers to"),
        ({"templates": {"diff_user": "{"}}, "'diff_user'"),
        ({"templates": {"diff_user": "{fitness_score:.2f}"}}, "'diff_user' cannot be filled"),
        ({"templates": {"diff_user": "{metrics:{programme}}"}}, "'diff_user' cannot be filled"),
    ],
)
def test_a_template_that_cannot_be_filled_is_an_error_with_its_name(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match="template") as caught:
        check_templates(PromptRules(**settings))

    assert said in str(caught.value)
