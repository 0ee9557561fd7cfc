"""What the arguments of a command name, and what of a configuration is said to be replaced."""

import re
from pathlib import Path

import pytest

from app.client.plan import plan_run
from app.client.setting_layers import load_problem, named_problem, read_layers
from app.config.foreign_names import (
    _EARLIER,
    _FUNSEARCH_LITE,
    _SHINKA,
    foreign_names,
    foreign_variables,
)
from app.config.layers import (
    ADDRESSES,
    UsageError,
    _known_variables,
    from_environment,
    known_setting,
    misspelt,
    wrong_variables,
)
from app.config.openevolve_keys import KEYS
from app.config.recipes import parameter_names, recipe
from app.config.section import variable_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "bin_packing"
LITE = EXAMPLE / "funsearch_lite.yaml"


def test_a_configuration_of_funsearch_lite_names_its_problem() -> None:
    assert named_problem([str(LITE)], None) == ([EXAMPLE], str(LITE))


def test_a_task_beside_the_file_is_preferred_to_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "bin_packing").mkdir()
    copy = tmp_path / "lite.yaml"
    copy.write_text(LITE.read_text())

    assert named_problem([str(copy)], None)[0] == [tmp_path / "bin_packing"]


def test_a_shipped_example_is_found_from_anywhere(tmp_path: Path) -> None:
    copy = tmp_path / "lite.yaml"
    copy.write_text(LITE.read_text())

    [found] = named_problem([str(copy)], None)[0]
    assert found.resolve() == EXAMPLE


def test_a_task_that_is_nowhere_is_refused_with_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "lite.yaml"
    copy.write_text(LITE.read_text().replace("bin_packing", "nowhere"))

    with pytest.raises(UsageError, match=r"task_name: there is no folder .* \(nowhere\)"):
        named_problem([str(copy)], None)


def test_the_document_runs_word_for_word() -> None:
    paths, config = named_problem([str(LITE)], None)
    layers = read_layers([], config)
    problem = load_problem(paths, layers)
    plan = plan_run(problem, layers, local=True)

    assert problem.stages == ("evaluate_stage1", "evaluate_stage2")
    assert problem.first_job().evaluator.environment == {"CAPACITY": "100", "SEED": "42"}
    assert (layers.experiment.run, layers.experiment.folder) == ("binpacking_demo_001", "artifacts")
    assert plan.settings.budget.proposals == 20 * 50 * 3
    assert [text for text in plan.notices if "save_interval" not in text] == []


FOLDER = {
    "initial_program.py": "# EVOLVE-BLOCK-START\nx = 1.5\n# EVOLVE-BLOCK-END\n",
    "evaluator.py": "def evaluate(path):\n    return {'score': 1.0}\n",
    "config.yaml": "max_iterations: 7\nrandom_seed: 1\nevaluator: {cascade_thresholds: [0.1]}\n",
}


def folder(tmp_path: Path) -> Path:
    problem = tmp_path / "problem"
    problem.mkdir()
    for name, text in FOLDER.items():
        (problem / name).write_text(text)
    return problem


def test_what_another_configuration_leaves_out_is_said(tmp_path: Path) -> None:
    problem, other = folder(tmp_path), tmp_path / "other.yaml"
    other.write_text("max_iterations: 7\nrandom_seed: 2\n")

    loaded = load_problem([problem], read_layers([], str(other)))

    [notice] = [text for text in loaded.notices if "--config" in text]
    assert notice.endswith(
        "of which these keys have no effect: evaluator.cascade_thresholds, random_seed."
    )


def test_what_a_file_of_settings_replaces_is_said(tmp_path: Path) -> None:
    problem, ours = folder(tmp_path), tmp_path / "ours.yaml"
    ours.write_text("search: {seed: 3}\nbudget: {proposals: 7}\n")
    layers = read_layers([], str(ours))

    plan = plan_run(load_problem([problem], layers), layers, local=True)

    [notice] = [text for text in plan.notices if "--config" in text]
    assert "replaces `random_seed` of the problem's configuration" in notice


def test_the_command_line_replaces_without_a_word(tmp_path: Path) -> None:
    layers = read_layers(["search.seed=3"], None)

    plan = plan_run(load_problem([folder(tmp_path)], layers), layers, local=True)

    assert not [text for text in plan.notices if "replaces" in text]


FOREIGN = [
    *(key.name for key in KEYS),
    *(*_EARLIER, *_FUNSEARCH_LITE, *_SHINKA, "evo_config.llm_models"),
]
PARAMETERS = {
    name
    for strategy in ("map_elites", "funsearch_lite")
    for name in parameter_names(recipe(strategy))
}


@pytest.mark.parametrize("name", sorted(set(FOREIGN)))
def test_a_name_of_another_engine_is_accepted_or_refused_with_the_one_that_works(name: str) -> None:
    section, _, rest = name.partition(".")
    if known_setting(section, rest):
        read_layers([f"{name}=1"], None)
        return

    with pytest.raises(UsageError, match="is a name of") as refused:
        read_layers([f"{name}=1"], None)

    remedy, found = refused.value.remedy, foreign_names().get(name)
    assert found is not None
    assert remedy == found.remedy
    for written in remedy.removeprefix("Write ").replace(",", " ").replace(".\n", " ").split():
        section, dot, rest = written.rstrip(".:;").partition("=")[0].partition(".")
        if dot and section in ("search", "llm", "queue", "budget", "sandbox", "prompts", "problem"):
            assert known_setting(section, rest) or rest.startswith("roles."), written
        elif dot and section == "strategy":
            assert rest in PARAMETERS, written
        assert written not in ADDRESSES


@pytest.mark.parametrize("name", sorted(set(FOREIGN)))
def test_a_variable_with_a_name_of_another_engine_is_refused_with_the_one_that_works(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in {variable_of(name), variable_of(name.replace(".", "_"))}:
        monkeypatch.setenv(variable, "1")
        wrong = wrong_variables()
        # It is one of ours, or the misspelling of one.
        if variable in _known_variables() or variable not in foreign_variables():
            monkeypatch.delenv(variable)
            continue
        with pytest.raises(UsageError, match="is a name of") as refused:
            from_environment({variable: "1"})
        assert refused.value.where == variable
        assert refused.value.remedy in wrong[variable]
        for written in re.findall(r"EVOQ_\w+", refused.value.remedy):
            assert not misspelt([written]), written
            section, _, rest = written.removeprefix("EVOQ_").lower().partition("__")
            assert known_setting(section, rest.replace("__", ".")) or section == "strategy"
        monkeypatch.delenv(variable)


@pytest.mark.parametrize(
    ("text", "named", "works"),
    [
        (
            "database: {num_islands: 3}\nsearch: {seed: 2}\n",
            "database.num_islands",
            "search.islands",
        ),
        ("llm: {primary_model: m}\nbudget: {proposals: 3}\n", "llm.primary_model", "llm.model"),
        ("evo_config: {num_generations: 3}\n", "evo_config.num_generations", "budget.proposals"),
        ("max_generations: 3\n", "max_generations", "budget.proposals"),
        ("search: {seed: 2}\ncontroller: {task_buffer: 3}\n", "task_buffer", "queue.generating"),
    ],
)
def test_a_file_of_settings_with_a_name_of_another_engine_says_which_works(
    tmp_path: Path, text: str, named: str, works: str
) -> None:
    (tmp_path / "ours.yaml").write_text(text)

    with pytest.raises(UsageError, match=rf"{named}` is a name of .*Write {works}"):
        read_layers([], str(tmp_path / "ours.yaml"))


def test_each_name_of_another_engines_section_is_answered_at_once(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("evo_config: {num_generations: 3, max_api_costs: 2}\n")

    with pytest.raises(UsageError) as refused:
        read_layers([], str(tmp_path / "ours.yaml"))

    assert "budget.proposals" in refused.value.remedy
    assert "budget.cost_usd" in refused.value.remedy
