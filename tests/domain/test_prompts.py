import pytest

from app.domain.operator import Brief, Draft, Known, Prompt
from app.domain.program import Program
from app.domain.prompt_rules import PromptRules
from app.domain.prompts import diff_prompt, redacted, rewrite_prompt

PARENT = Known(
    Program("def f():\n    return 1\n"),
    0.5,
    metrics={"speed": 2.0, "size": 3.25},
    features={"complexity": 40.0},
    artifacts={"stderr": "warning: slow", "trace": "line 3"},
)
FITTER = Known(Program("def f():\n    return 'fitter'\n"), 0.9, metrics={"speed": 9.0})
WEAKER = Known(Program("def f():\n    return 'weaker'\n"), 0.1)
UNMEASURED = Known(Program("def f():\n    return 'unmeasured'\n"))
CHILD = Known(Program("def f():\n    return 2\n"), 0.75, changes="Change 1: '1' to '2'")


def brief_of(
    *inspirations: Known,
    parent: Known = PARENT,
    instructions: str = "Make f larger.",
    siblings: tuple[Known, ...] = (),
    ordinal: int = 7,
    **settings: object,
) -> Brief:
    ids = tuple(known.program.id for known in inspirations)
    draft = Draft(ordinal, 0, 0, 1, (parent.program.id,), ids)
    known = {one.program.id: one for one in (parent, *inspirations)}
    return Brief(
        instructions, "python", (draft,), known, siblings=siblings, prompts=settings, seed="s"
    )


def asked(brief: Brief) -> Prompt:
    return diff_prompt(brief, brief.drafts[0])


def test_the_instructions_are_the_system_text() -> None:
    assert asked(brief_of()).system == "Make f larger."


def test_without_instructions_the_packaged_system_text_stands() -> None:
    assert "expert programmer" in asked(brief_of(instructions="")).system


def test_the_system_message_may_be_a_text_or_the_name_of_a_template() -> None:
    assert asked(brief_of(system_message="Be {brief}.")).system == "Be {brief}."
    named = brief_of(system_message="mine", templates={"mine": "My own text."})
    assert asked(named).system == "My own text."
    assert asked(brief_of(instructions="mine", templates={"mine": "So."})).system == "So."


def test_the_sample_is_the_proposals_ordinal() -> None:
    assert asked(brief_of()).sample == 7


def test_the_parent_is_shown_with_all_that_was_measured() -> None:
    user = asked(brief_of()).user

    assert "```python\ndef f():\n    return 1\n```" in user
    assert "Fitness: 0.5" in user
    assert "speed 2, size 3.25" in user
    assert "Features (complexity): complexity 40" in user
    assert "### stderr\n```\nwarning: slow\n```" in user


def test_fitter_programs_and_others_stand_under_headings_of_their_own() -> None:
    user = asked(brief_of(WEAKER, FITTER, UNMEASURED)).user

    top, others = user.index("## Top performing programs"), user.index("## Inspirations")
    assert top < user.index("'fitter'") < others < user.index("'weaker'")
    assert others < user.index("'unmeasured'") < user.index("# The current program")


def test_as_many_programs_are_shown_as_asked_for() -> None:
    user = asked(brief_of(WEAKER, FITTER, num_top_programs=0, num_diverse_programs=0)).user

    assert "'fitter'" not in user
    assert "'weaker'" not in user


def test_what_was_tried_from_this_parent_is_shown_with_its_outcome() -> None:
    user = asked(brief_of(siblings=(CHILD,))).user

    assert "Changes: Change 1: '1' to '2'" in user
    assert "better: fitness 0.5 to 0.75" in user


def test_the_beginning_is_the_same_for_every_draft() -> None:
    one = asked(brief_of(FITTER)).user
    other = asked(brief_of(WEAKER, parent=CHILD, ordinal=9)).user

    fixed = one[: one.index("# Other programs")]
    assert other.startswith(fixed)
    assert "<<<<<<< SEARCH" in fixed
    assert len(fixed) > 500


def test_diff_and_rewrite_ask_for_their_own_form() -> None:
    brief = brief_of()
    rewrite = rewrite_prompt(brief, brief.drafts[0]).user

    assert "SEARCH" not in rewrite
    assert "complete program in one fence" in rewrite


def test_an_artifact_is_cut_to_its_bound() -> None:
    parent = Known(PARENT.program, 0.5, artifacts={"log": "x" * 20 + "y" * 100})
    user = asked(
        brief_of(parent=parent, max_artifact_bytes=20, artifact_security_filter=False)
    ).user

    assert "x" * 20 + "\n... (cut)" in user
    assert "yy" not in user


def test_artifacts_are_left_out_where_they_are_not_wanted() -> None:
    assert "warning: slow" not in asked(brief_of(include_artifacts=False)).user


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("\x1b[31mred\x1b[0m", "\x1b"),
        ("token = hunter2", "hunter2"),
        ("PASSWORD: hunter2", "hunter2"),
        ("used sk-abcdefgh1234 here", "abcdefgh"),
        ("a" * 40, "aaaa"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str, secret: str) -> None:
    assert secret not in redacted(text)


def test_ordinary_output_is_left_alone() -> None:
    text = "Traceback: line 3, ValueError: 12 != 13"

    assert redacted(text) == text


def test_a_long_prompt_loses_its_least_useful_parts_first_and_says_so() -> None:
    full = asked(brief_of(WEAKER, FITTER, siblings=(CHILD,))).user
    shorter = asked(
        brief_of(WEAKER, FITTER, siblings=(CHILD,), max_prompt_chars=len(full) - 1)
    ).user
    shortest = asked(brief_of(WEAKER, FITTER, siblings=(CHILD,), max_prompt_chars=10)).user

    assert "'weaker'" not in shorter
    assert "'fitter'" in shorter
    assert "1 parts were left out" in shorter
    assert "'fitter'" not in shortest
    assert "warning: slow" not in shortest
    assert "return 1" in shortest


def test_braces_in_programs_and_artifacts_are_text() -> None:
    parent = Known(Program("x = {'{a}': 1}\n"), 0.5, artifacts={"{k}": "{v}"})
    user = asked(brief_of(Known(Program("y = {b}\n"), 0.1), parent=parent)).user

    assert "x = {'{a}': 1}" in user
    assert "y = {b}" in user
    assert "{v}" in user


def test_a_template_can_be_replaced() -> None:
    mine = "{language}|{fitness_score}|{current_program}|{{literal}}"
    user = asked(brief_of(templates={"diff_user": mine})).user

    assert user == "python|0.5|def f():\n    return 1|{literal}"


def test_variations_are_drawn_by_the_brief_and_only_where_wanted() -> None:
    settings: dict[str, object] = {
        "templates": {"diff_user": "{greeting} {current_program}"},
        "template_variations": {"greeting": ["Hello.", "Good day.", "Greetings."]},
    }
    drawn = {asked(brief_of(ordinal=n, **settings)).user.split(" def")[0] for n in range(40)}

    assert drawn == {"Hello.", "Good day.", "Greetings."}
    assert asked(brief_of(**settings)) == asked(brief_of(**settings))
    plain = asked(brief_of(**settings, use_template_stochasticity=False)).user
    assert plain.startswith("Hello.")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"templates": {"diff_user": "{programme}"}}, "refers to {programme}; it is given"),
        ({"templates": {"top_program": "{current_program}"}}, "'top_program' refers to"),
        ({"templates": {"diff_user": "{language.__class__}"}}, "refers to"),
        ({"templates": {"diff_user": "{"}}, "'diff_user'"),
        ({"templates": "diff_user"}, "prompt.templates must be a mapping"),
        ({"template_variations": {"a": []}}, "none of them empty"),
        ({"max_artifact_bytes": "20"}, "must be a whole number, not negative, and is '20'"),
        ({"max_prompt_chars": -1}, "prompt.max_prompt_chars"),
        ({"include_artifacts": 1}, "prompt.include_artifacts must be true or false"),
        ({"system_message": None}, "prompt.system_message must be a text"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=r"prompt|template") as caught:
        PromptRules.of(settings)

    assert said in str(caught.value)


def test_settings_of_others_are_not_looked_at() -> None:
    assert PromptRules.of({"template_dir": 3, "use_meta_prompting": "x"}) == PromptRules()
