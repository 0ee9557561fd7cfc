"""`docs/settings.md` has every setting there is, with its default, and none that there is not."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.config.layers import Choices, problem_options
from app.config.models import ModelChoice
from app.config.resolve import resolved
from app.config.settings import RunSettings, Settings
from app.domain.problem import Limits

OPEN = ("strategy", "prompts", "problem")
"""Sections without a model; prompts.md and problems.md have their tables."""


def written(value: Any) -> str:
    match value:
        case None | "" | [] | {}:
            return "–"
        case bool():
            return str(value).lower()
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)


def row(name: str, one: FieldInfo) -> str:
    default = one.get_default(call_default_factory=True)
    return f"| `{name}` | {written(default)} | {one.description} |"


def documented() -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        name: one.annotation
        for name, one in RunSettings.model_fields.items()
        if name not in OPEN and one.annotation is not None
    }
    run = [
        row(f"{section}.{name}", one)
        for section, model in sections.items()
        for name, one in model.model_fields.items()
    ]
    own = [
        row(f"EVOQ_{name.upper()}", one)
        for name, one in Settings.model_fields.items()
        if name not in sections
    ]
    return [*run, *own]


def test_the_page_of_settings_has_every_one_with_its_default_and_no_other(repository: Path):
    text = (repository / "docs" / "settings.md").read_text()

    rows = [line for line in text.splitlines() if line.startswith("| `")]

    assert rows == documented()


def test_every_setting_says_what_it_is():
    assert [line for line in documented() if line.endswith("None |")] == []


def test_every_key_of_a_model_is_told_in_the_page_on_models(repository: Path):
    text = (repository / "docs" / "models.md").read_text()

    shared = {"usd_per_million_cached_tokens", "usd_per_million_completion_tokens"}
    absent = [name for name in ModelChoice.model_fields if f"{name}" not in text]

    assert set(absent) <= shared


@pytest.mark.parametrize("limit", [one.name for one in fields(Limits)])
def test_every_limit_of_the_sandbox_is_a_setting_that_shapes_the_problem(limit: str):
    said = Choices("--set", {f"sandbox.{limit}": 77})

    assert resolved([said], {}).settings.sandbox.model_dump()[limit] == 77
    assert problem_options([said]) == {f"sandbox.{limit}": 77}
