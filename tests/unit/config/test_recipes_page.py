"""`docs/recipes.md` has every parameter of every recipe, with default and meaning, and no other."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from app.config.section import fields_of
from app.config.settings import SearchSettings
from app.domain.search.recipes import RECIPES

PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"


def meanings(recipe: type) -> dict[str, str]:
    """Returns the attributes that a recipe's docstring describes."""
    described = inspect.cleandoc(recipe.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^  (\w+): (.*(?:\n {4}.*)*)", described.partition("\n\n")[0], re.M)
    return {name: " ".join(text.split()) for name, text in entries}


def shown(default: Any) -> str:
    return (
        "–"
        if default is None
        else str(default).lower()
        if default in (True, False) and isinstance(default, bool)
        else str(default)
    )


def rows(recipe: type) -> list[str]:
    own = [f for f in fields(recipe) if f.name not in fields_of(SearchSettings)]  # type: ignore[arg-type]
    about = meanings(recipe)
    return [f"| `strategy.{f.name}` | {shown(f.default)} | {about[f.name]} |" for f in own]


def section(name: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", list(RECIPES))
def test_the_page_has_the_parameters_of_each_recipe_with_its_own_words(name: str):
    text = section(name)

    assert text, f"no section on {name}"
    documented = [line for line in text.splitlines() if line.startswith("| `strategy.")]
    assert documented == rows(RECIPES[name])


@pytest.mark.parametrize("name", list(RECIPES))
def test_the_page_names_the_settings_of_search_that_a_recipe_takes(name: str):
    taken = [f.name for f in fields(RECIPES[name]) if f.name in fields_of(SearchSettings)]  # type: ignore[arg-type]

    text = section(name)

    assert [setting for setting in taken if f"`search.{setting}`" not in text] == []


def test_the_page_names_every_recipe_and_no_other():
    page = PAGE.read_text(encoding="utf-8")

    assert re.findall(r"^## `(\w+)`$", page, re.M) == re.findall(r"^\| \[`(\w+)`\]", page, re.M)
    assert sorted(re.findall(r"^## `(\w+)`$", page, re.M)) == sorted(RECIPES)
