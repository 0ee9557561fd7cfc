"""Options of `evoq run` that stand for settings, and lines that it prints."""

from pathlib import Path

import pytest

from app.cli.application import status_of
from app.client.plan import plan_run
from app.client.protections import protection_lines
from app.client.setting_layers import SettingLayers, load_problem, read_layers
from app.config.layers import Choices, UsageError, from_assignments
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


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What `evoq run` hands on to the reading of settings, the problem and the plan."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    found: dict[str, object] = {}

    def read(assignments: object, config: object, options: dict[str, object]) -> SettingLayers:
        found.update(options, assignments=assignments, config=config)
        return SettingLayers((Choices("the command line", {}),))

    def load(paths: list[Path], layers: object, *, strict: bool) -> None:
        found.update(paths=paths, strict=strict)

    def plan(problem: object, layers: object, **flags: object) -> None:
        found.update(flags)
        raise LookupError("enough")

    monkeypatch.setattr("app.cli.run.read_layers", read)
    monkeypatch.setattr("app.cli.run.load_problem", load)
    monkeypatch.setattr("app.cli.run.plan_run", plan)
    for variable in ("EVOQ_DATABASE_URL", "EVOQ_REDIS_URL"):
        monkeypatch.delenv(variable, raising=False)
    return found


def test_names_of_openevolve_are_options_of_run(
    asked: dict[str, object], capsys: pytest.CaptureFixture[str]
):
    theirs = ["--target-score", "0.9", "--api-base", "http://h/v1", "--primary-model", "m"]
    status = status_of(["run", "p", *theirs, "--output", "results"])

    assert status == 1, capsys.readouterr()
    assert asked["search.stop_fitness"] == 0.9
    assert (asked["llm.base_url"], asked["llm.model"]) == ("http://h/v1", "m")


def test_every_option_of_run_reaches_what_it_is_about(asked: dict[str, object]):
    plain = {"budget.proposals": None, "search.seed": None, "assignments": None, "config": None}
    flags = {"strict": False, "local": True, "reproducible": False, "no_model": False}

    assert status_of(["run", "p"]) == 1
    assert plain.items() <= asked.items()
    assert flags.items() <= asked.items()

    values = ["--iterations", "7", "--seed", "5", "--config", "c.yaml", "--set", "a=b"]
    assert status_of(["run", "p", *values, "--strict", "--reproducible", "--no-model"]) == 1
    given = {"budget.proposals": 7, "search.seed": 5, "assignments": ["a=b"], "config": "c.yaml"}
    assert given.items() <= asked.items()
    assert {"strict": True, "reproducible": True, "no_model": True}.items() <= asked.items()


def test_the_settings_of_a_file_and_its_folder_of_templates_are_read(tmp_path: Path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "diff_user.txt").write_text("Mine.")
    (tmp_path / "c.yaml").write_text("search: {islands: 3}\nprompts: {template_dir: texts}\n")

    [line, _, file] = read_layers(
        [f"prompts.template_dir={tmp_path}/texts"], f"{tmp_path}/c.yaml"
    ).choices

    texts = {"prompts.templates.diff_user": "Mine."}
    assert line.values == texts
    assert file.values == {"search.islands": 3, **texts}


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
