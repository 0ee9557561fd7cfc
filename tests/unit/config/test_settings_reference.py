"""`docs/settings.md` has every setting there is, with default, range and meaning, and no other."""

import ast
import enum
import functools
import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.adapters.problems.openevolve.translation import DEFAULT_CORES, DEFAULT_TIMEOUT_SECONDS
from app.config.layers import Choices, owner_of, problem_options
from app.config.models import ModelChoice
from app.config.resolve import resolved
from app.config.settings import Owner, RunSettings, Settings
from app.domain.problem import Limits

OPEN = ("strategy", "problem")
"""Sections without a model: recipes have parameters, and problems.md has its table."""

OWNED = ("queue", "sandbox", "prices")
"""Sections whose settings are not all the run's."""


def shown(default: Any) -> str:
    match default:
        case None | "" | [] | {}:
            return "–"
        case bool():
            return str(default).lower()
        case _:
            return f"{default:g}" if isinstance(default, float) else str(default)


def values(field: FieldInfo) -> str:
    """Returns the values that a setting takes; "–" for any of its type."""
    bounds = {name: value for part in field.metadata for name, value in bounds_of(part)}
    if bounds:
        return ", ".join(f"{sign} {value:g}" for sign, value in bounds.items())
    return ", ".join(choices(field.annotation)) or "–"


def bounds_of(part: Any) -> Iterator[tuple[str, float]]:
    """Yields the signs and numbers of a constraint; nothing for another kind of constraint."""
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        if isinstance(value := getattr(part, name, None), int | float):
            yield sign, value


def choices(annotation: Any) -> list[str]:
    """Returns the values of a closed set; [] for a type that is none."""
    if get_origin(annotation) is dict:
        return []
    if annotation is bool:
        return ["true", "false"]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [str(member) for member in annotation]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for part in get_args(annotation) for choice in choices(part)]


@functools.cache
def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the text below each attribute of a class, also of an inherited one.

    Pydantic can read it too, which would take a tenth of the import of the settings.
    """
    found = {}
    for each in reversed(model.__mro__):
        if each.__module__.startswith("app."):
            [definition] = ast.parse(inspect.getsource(each)).body
            assert isinstance(definition, ast.ClassDef)
            for attribute, below in itertools.pairwise(definition.body):
                match attribute, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        found[name] = text
    return found


def row(name: str, field: FieldInfo, docstring: str | None) -> str:
    default = field.get_default(call_default_factory=True)
    meaning = " ".join((field.description or docstring or "").split())
    cells = [f"`{name}`", shown(default), values(field), meaning]
    if name.partition(".")[0] in OWNED:
        cells.insert(3, owner_of(name))
    return f"| {' | '.join(cells)} |"


def documented() -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        name: field.annotation
        for name, field in RunSettings.model_fields.items()
        if name not in OPEN and field.annotation is not None
    }
    run = [
        row(f"{section}.{name}", field, docstrings(model).get(name))
        for section, model in sections.items()
        for name, field in model.model_fields.items()
    ]
    own = docstrings(Settings)
    process = [
        row(f"EVOQ_{name.upper()}", field, own.get(name))
        for name, field in Settings.model_fields.items()
        if name not in sections
    ]
    return [*run, *process]


def test_the_page_of_settings_has_every_setting_and_no_other(repository: Path):
    text = (repository / "docs" / "settings.md").read_text()

    rows = [line for line in text.splitlines() if line.startswith("| `")]

    assert rows == documented()


def test_every_section_outside_those_tables_is_the_runs_alone():
    others = [name for name in RunSettings.model_fields if name not in (*OWNED, *OPEN)]

    assert {
        owner_of(f"{section}.{name}")
        for section in others
        for name in getattr(RunSettings(), section).__class__.model_fields
    } == {Owner.RUN}


def test_every_meaning_is_a_sentence():
    assert [line for line in documented() if not line.endswith(". |")] == []


def test_the_page_on_models_has_every_key_of_a_model(repository: Path):
    text = (repository / "docs" / "models.md").read_text()

    shared = {"usd_per_million_cached_tokens", "usd_per_million_completion_tokens"}
    absent = [name for name in ModelChoice.model_fields if f"{name}" not in text]

    assert set(absent) <= shared


@pytest.mark.parametrize("limit", [limit.name for limit in fields(Limits)])
def test_every_limit_of_the_sandbox_is_a_setting_that_shapes_the_problem(limit: str):
    line = Choices("--set", {f"sandbox.{limit}": 77})

    assert resolved([line], {}).settings.sandbox.model_dump()[limit] == 77
    assert problem_options([line]) == {f"sandbox.{limit}": 77}


def test_the_limits_on_the_page_of_problems_are_those_of_the_code(repository: Path):
    text = (repository / "docs" / "problems.md").read_text()
    limits = {limit.name: limit.default for limit in fields(Limits)}
    said: dict[str, float] = {}
    for names, defaults, _ in re.findall(r"^\| (`sandbox.*?) \| (.*?) \| (.*?) \|$", text, re.M):
        for name, given in zip(re.findall(r"\.(\w+)", names), defaults.split(", "), strict=False):
            if number := re.fullmatch(r"(\d+)( MiB)?", given.removeprefix("`")):
                said[name] = int(number[1]) * (2**20 if number[2] else 1)

    assert said == {name: limits[name] for name in said}
    assert set(said) == {"output_bytes", "result_bytes", "file_bytes", "processes", "open_files"}
    assert f"else {DEFAULT_TIMEOUT_SECONDS:g} |" in text
    assert f"else times {DEFAULT_CORES:g} |" in text
    assert f"else {limits['memory_mib']} |" in text
    words = "Without a value, {} MiB."
    settings = (repository / "docs" / "settings.md").read_text()
    for name in ("output_bytes", "result_bytes", "file_bytes"):
        [row] = re.findall(rf"^\| `sandbox.{name}` .*$", settings, re.M)
        assert words.format(limits[name] // 2**20) in row
    for name in ("processes", "open_files"):
        [row] = re.findall(rf"^\| `sandbox.{name}` .*$", settings, re.M)
        assert f"Without a value, {limits[name]}." in row
