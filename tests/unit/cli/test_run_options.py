"""Options of `evoq run` that stand for settings, and lines that it prints."""

from pathlib import Path

import pytest

from app.cli.application import status_of
from app.cli.measurement import protection_lines
from app.cli.plan import load_problem, plan_run, read_layers
from app.config.layers import UsageError, from_assignments
from app.ports.protocols import Protection

CONFIG = "llm:\n  api_base: http://localhost:1/v1\n  models: [{name: m}]\n"


def folder_with_a_model(base: Path) -> Path:
    (base / "initial_program.py").write_text("x = 1\n")
    (base / "evaluator.py").write_text("def evaluate(path):\n    return {'combined_score': 1}\n")
    (base / "config.yaml").write_text(CONFIG)
    return base


def test_without_a_model_the_one_of_the_configuration_is_not_asked(tmp_path: Path):
    layers = read_layers([], None)
    problem = load_problem([folder_with_a_model(tmp_path)], layers)

    asking = plan_run(problem, layers, local=True)
    asking_none = plan_run(problem, layers, local=True, no_model=True)

    assert {"diff", "rewrite"} & set(asking.operators)
    assert set(asking_none.operators) == {"tune", "mutate"}
    assert asking_none.settings.llm.every_model == []


@pytest.mark.parametrize(
    ("assignment", "known"), [("strategy.entrants=2", True), ("strategy.entrant=2", False)]
)
def test_a_parameter_of_the_recipe_that_the_problem_names_can_be_set(assignment: str, known: bool):
    layers = read_layers([assignment], None)
    game = load_problem([Path(__file__).parents[3] / "examples" / "connect_four"], layers)

    if not known:
        with pytest.raises(UsageError, match="'tournament' has no parameter"):
            plan_run(game, layers, local=True, no_model=True)
        return
    plan = plan_run(game, layers, local=True, no_model=True)
    assert plan.settings.search.strategy == "tournament"
    assert plan.settings.strategy["entrants"] == 2


def test_names_of_openevolve_are_options_of_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    given: dict[str, object] = {}

    def stop(assignments: object, config: object, options: dict[str, object]) -> None:
        given.update(options)
        raise LookupError("enough")

    monkeypatch.setattr("app.cli.plan.read_layers", stop)
    (tmp_path / "p").mkdir()
    theirs = ["--target-score", "0.9", "--api-base", "http://h/v1", "--primary-model", "m"]
    status = status_of(["run", "p", *theirs, "--output", "results"])

    assert status == 1, capsys.readouterr()
    assert given["search.stop_fitness"] == 0.9
    assert (given["llm.base_url"], given["llm.model"]) == ("http://h/v1", "m")


def test_the_line_on_protections_is_short_unless_they_are_asked_for():
    there = [Protection("a memory limit", True, ""), Protection("no network", False, "do this")]

    short, missing = protection_lines(there)
    long, _ = protection_lines(there, verbose=True)

    assert short == "sandbox: 1 of 2 protections on (-v names them)"
    assert missing == "sandbox: missing: no network (do this)"
    assert long.endswith(": a memory limit")


@pytest.mark.parametrize("name", ["foo", "search.zzzz", "a6"])
def test_a_setting_that_is_like_no_other_gets_no_suggestion(name: str):
    with pytest.raises(UsageError) as caught:
        from_assignments([f"{name}=1"])

    assert caught.value.remedy == "docs/settings.md lists all."
