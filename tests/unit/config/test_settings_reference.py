"""`docs/settings.md` has every setting there is, with default, range and meaning, and no other."""

import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from app.adapters.problems.openevolve.translation import DEFAULT_CORES, DEFAULT_TIMEOUT_SECONDS
from app.config.layers import Choices, problem_options
from app.config.models import ModelChoice
from app.config.resolve import resolved
from app.config.section import Owner, fields_of
from app.config.settings import OF_PROCESSES, RunSettings, Settings, owner_of
from app.domain.problem import Limits
from infra import settings_page

OPEN = ("strategy", "problem")
"""Sections without a model: recipes have parameters, and problems.md has its table."""

OWNED = ("queue", "sandbox", "prices")
"""Sections whose settings are not all the run's."""

ROW = re.compile(r"^\| `([\w.]+)` \|.*\|$", re.MULTILINE)


@pytest.fixture(scope="module")
def written(repository: Path) -> str:
    return (repository / "docs" / "settings.md").read_text()


def test_the_page_of_settings_is_the_generated_one(written: str) -> None:
    generated = settings_page.page(settings_page.TEXT.read_text())

    assert written == generated, "`make settings` writes it anew"


def test_the_page_has_every_setting_and_no_other(written: str) -> None:
    of_runs = [
        f"{section}.{name}"
        for section, values in RunSettings().model_dump().items()
        for name in values
    ]
    sections = {*RunSettings.model_fields}
    of_processes = [
        f"EVOQ_{name.upper()}"
        for name in Settings.model_fields
        if name not in {*sections, *OF_PROCESSES}
    ]
    of_processes += [
        f"EVOQ_{section.upper()}__{name.upper()}"
        for section, form in OF_PROCESSES.items()
        for name in fields_of(form)
    ]

    assert ROW.findall(written) == [*of_runs, *of_processes]


@pytest.mark.parametrize(
    "row",
    [
        "| `budget.cost_usd` | – | > 0 | US dollars the run's completions may cost. |",
        "| `queue.attempts` | 5 | ≥ 1 | worker | Times that one step is started before the run "
        "fails; a game is a draw or void instead. |",
        "| `llm.feedback` | false | true, false | Whether every model of the role `judge` rates "
        "each measured program. |",
        "| `llm.retry_delay_seconds` | 0.5 | ≥ 0 | Seconds of the longest first pause between "
        "attempts; each further pause may be twice as long. |",
        "| `prompts.functions_per_prompt` | 2 | ≥ 0 | Versions of the function, the parent's "
        "included, that a prompt of the operator `complete` contains. |",
        "| `EVOQ_HOME` | .evoq | – | Folder of the embedded stack and of what this machine "
        "remembers. |",
    ],
)
def test_a_row_has_default_range_owner_and_meaning(written: str, row: str) -> None:
    assert row in written.splitlines()


@pytest.mark.parametrize(
    ("places", "named"), [("{{budget}}", "search"), ("{{budget}}\n{{turbo}}", "turbo")]
)
def test_each_section_needs_one_place_in_the_text(places: str, named: str) -> None:
    with pytest.raises(LookupError, match=named):
        settings_page.page(places)


def test_every_section_outside_those_tables_is_the_runs_alone():
    others = [name for name in RunSettings.model_fields if name not in (*OWNED, *OPEN)]

    assert {
        owner_of(f"{section}.{name}")
        for section in others
        for name in fields_of(type(getattr(RunSettings(), section)))
    } == {Owner.RUN}


def test_every_meaning_is_a_sentence(written: str) -> None:
    rows = [match[0] for match in ROW.finditer(written)]

    assert [row for row in rows if not row.endswith(". |")] == []


def test_the_page_on_models_has_every_key_of_a_model(repository: Path):
    text = (repository / "docs" / "models.md").read_text()

    shared = {"usd_per_million_cached_tokens", "usd_per_million_completion_tokens"}
    absent = [name for name in fields_of(ModelChoice) if f"{name}" not in text]

    assert set(absent) <= shared


@pytest.mark.parametrize("limit", [limit.name for limit in fields(Limits)])
def test_every_limit_of_the_sandbox_is_a_setting_that_shapes_the_problem(limit: str):
    line = Choices("--set", {f"sandbox.{limit}": 77})

    assert asdict(resolved([line], {}).settings.sandbox)[limit] == 77
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
