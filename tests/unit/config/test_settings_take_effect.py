"""Settings that had no test of their effect: each, set, changes what it is about."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from app.adapters.sandbox import choose, containers
from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.process import ProcessSandbox
from app.config.models import ModelSettings
from app.config.settings import RunSettings, SandboxSettings
from app.domain.operator import Brief, Draft, ProgramRecord, Role
from app.domain.operators.conversation import describer
from app.domain.program import Program
from app.domain.prompting.prompts import diff_prompt
from app.domain.source.edits import Edit

INFRA = Path(__file__).resolve().parents[3] / "infra"
BODY = "    x = 1\n" * 8
PARENT = ProgramRecord(Program(f"def f():\n{BODY}    return 1\n"), 0.5)
TOP = ProgramRecord(Program("def f():\n    return 3\n"), 0.9)
OTHER = ProgramRecord(
    Program(f"def f():\n{BODY}    return 2\n"), 0.4, changes="Change 1: '1' to '2'"
)


def prompt(**prompts: Any) -> str:
    settings = RunSettings.model_validate({"prompts": prompts, "search": {"top_programs": 1}})
    known = {record.program.id: record for record in (PARENT, TOP, OTHER)}
    parent, *others = known
    draft = Draft(7, 0, 0, 1, (parent,), tuple(others))
    rules = settings.prompts.rules(settings.search)
    brief = Brief("Make f larger.", "python", (draft,), known, prompts=rules, seed="s")
    return diff_prompt(brief, draft).user


@pytest.mark.parametrize(
    ("setting", "set_to", "text", "by_default"),
    [
        ("suggest_simplification_after_chars", 50, "Consider simplifying", False),
        ("include_changes_under_chars", 5, "Modification: Change 1", True),
        ("concise_implementation_max_lines", 5, "Concise implementation", True),
        ("comprehensive_implementation_min_lines", 5, "Comprehensive implementation", False),
    ],
)
def test_a_setting_of_prompts_changes_what_a_prompt_says(
    setting: str, set_to: int, text: str, by_default: bool
) -> None:
    few = {"concise_implementation_max_lines": 3} if setting.startswith("compre") else {}
    assert (text in prompt(**few)) is by_default
    assert (text in prompt(**few, **{setting: set_to})) is not by_default


def test_the_summary_of_edits_has_the_bounds_of_the_settings() -> None:
    edit = Edit(("x" * 60,) * 5, ("y",))

    def text(**prompts: int) -> str:
        settings = RunSettings.model_validate({"prompts": prompts})
        return describer(settings.prompts.rules(settings.search))([edit])

    assert "... (3 more lines)" not in text()
    assert "... (3 more lines)" in text(diff_summary_max_lines=2)
    assert "x" * 60 in text()
    assert "x" * 60 not in text(diff_summary_max_line_len=20)


def test_settings_of_a_sandbox_reach_its_pool_and_its_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: dict[str, Any] = {}

    def record(pool: object, **parts: Any) -> object:
        made.update(pool=pool, **parts)
        return object.__new__(DockerSandbox)

    monkeypatch.setattr(choose, "engine_answers", lambda seconds: True)
    monkeypatch.setattr(containers, "remove_orphans", lambda *_: 0)
    monkeypatch.setattr(containers.Images, "has_default", lambda self: True)
    monkeypatch.setattr(containers, "DockerSandbox", record)

    def pool(**settings: Any) -> dict[str, Any]:
        choose.choose(SandboxSettings(**settings), infra=INFRA, show_progress=lambda _: None)
        return asdict(made["pool"])

    assert pool(cpus=3.5)["max_trials"] == 500
    assert made["settings"].cpus == 3.5
    assert pool(trials_per_cell=7)["max_trials"] == 7
    assert pool(trials_per_cell=7, one_container_per_trial=True)["max_trials"] == 1
    assert pool(minutes_per_cell=2)["max_age_seconds"] == 120.0
    assert pool(trials_per_evaluator=9)["trials_per_evaluator"] == 9


def test_settings_of_installations_reach_the_environments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: dict[str, Any] = {}

    def record(**parts: Any) -> Environments:
        made.update(parts)
        return Environments(folder=tmp_path)

    monkeypatch.setattr(choose, "Environments", record)
    settings = SandboxSettings(
        backend="process",
        build_minutes=2,
        build_hosts="one.example two.example",
        unisolated_builds=True,
        environments=str(tmp_path),
    )

    sandbox = choose.choose(settings, infra=INFRA, show_progress=lambda _: None)

    assert isinstance(sandbox, ProcessSandbox)
    assert made["build_seconds"] == 120.0
    assert made["hosts"] == ("one.example", "two.example")
    assert (made["unisolated"], made["folder"]) == (True, tmp_path)
    sandbox.close()


def test_a_model_rests_after_the_failures_and_for_the_time_of_the_settings() -> None:
    default, own = ModelSettings(), {"failover_after": 5, "failover_rest_seconds": 7.0}
    assert default.fail_over(Role.GENERATOR) == (3, 30.0)
    assert ModelSettings.model_validate(own).fail_over(Role.GENERATOR) == (5, 7.0)
    of_role = ModelSettings.model_validate({"roles": {"judge": own}})
    assert of_role.fail_over(Role.JUDGE) == (5, 7.0)
    assert of_role.fail_over(Role.GENERATOR) == (3, 30.0)
