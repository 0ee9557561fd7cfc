"""What a run may say about its prompts; pure but for a folder of templates."""

from pathlib import Path

import pytest

from app.client.setting_layers import with_templates
from app.config.layers import Choices, UsageError, from_assignments, from_file
from app.config.resolve import resolved

SUGGESTED = {"prompts.templates": {"diff_user": "problem's {language}", "top_program": "{score}"}}


def nothing(loaded: object) -> bool:
    """Recognises no file as a problem's own configuration."""
    return False


def test_a_run_replaces_one_template_and_keeps_the_problems_others():
    result = from_assignments(["prompts.templates.diff_user=mine {language}"])
    file = from_file(
        "prompts:\n  templates:\n    top_program: from the file\n",
        "f.yaml",
        foreign=nothing,
    )
    assert file is not None

    prompts = resolved([result, file], SUGGESTED).settings.prompts

    assert prompts.templates == {"diff_user": "mine {language}", "top_program": "from the file"}


def test_the_files_of_a_template_folder_are_templates_by_name(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diff_user.txt").write_text("from the folder")
    (tmp_path / "mine" / "top_program.txt").write_text("from the folder")
    values = {"prompts.template_dir": "mine", "prompts.templates.top_program": "said"}

    result = with_templates(Choices("f", values), tmp_path)

    assert result.values == {
        "prompts.templates.diff_user": "from the folder",
        "prompts.templates.top_program": "said",
    }


@pytest.mark.parametrize(("folder", "expected"), [("none", "not a folder"), (".", "no template")])
def test_a_folder_that_holds_no_templates_is_refused(tmp_path: Path, folder: str, expected: str):
    with pytest.raises(UsageError, match=expected):
        with_templates(Choices("f", {"prompts.template_dir": folder}), tmp_path)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("prompts.templates.diff_user={programme}", r"refers to \{programme\}"),
        (
            "prompts.max_prompt_tokens=many",
            "prompts.max_prompt_tokens`: input should be a valid integer",
        ),
        ("prompts.max_prompt_tokens=-1", "greater than or equal to 0"),
        ("prompts.include_artifacts=perhaps", "prompts.include_artifacts`: input should be"),
        ("prompts.system_message=null", "prompts.system_message`: input should be a valid string"),
        ("prompts.templates.diff_user={", "'diff_user'"),
        ("prompts.template_variations={a: []}", "at least 1 item"),
        ("prompts.max_prompt_token=3", "`prompts.max_prompt_tokens`"),
    ],
)
def test_a_wrong_prompt_setting_is_refused_before_the_run_exists(assignment: str, expected: str):
    with pytest.raises(UsageError, match=expected):
        resolved([from_assignments([assignment])], {})


def test_a_template_of_the_problem_that_cannot_be_filled_is_refused_too():
    with pytest.raises(UsageError, match=r"refers to \{nobody\}") as caught:
        resolved([], {"prompts.templates": {"top_program": "{nobody}"}})

    assert "the problem's configuration" in str(caught.value)


def test_a_misspelt_template_name_is_a_notice():
    [notice] = resolved([], {"prompts.templates": {"diff_usr": "x", "mine": "y"}}).notices

    assert "`diff_user`" in notice
