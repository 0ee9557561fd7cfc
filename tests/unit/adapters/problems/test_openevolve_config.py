import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from app.adapters.problems import load, reload
from app.adapters.problems.openevolve.config_yaml import read, without_secrets
from app.config.checks import without_judges
from app.config.layers import UsageError, from_assignments, known_setting
from app.config.openevolve_keys import KEYS, MODEL_KEYS, Key, Kind
from app.config.resolve import resolved
from app.domain.operator import Role
from app.domain.problem import Axis, Problem, ProblemError


def problem_with(base: Path, text: str, **arguments: Any) -> Problem:
    program = "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\n"
    (base / "initial_program.py").write_text(program)
    (base / "evaluator.py").write_text("def evaluate(path):\n    return {'combined_score': 1}\n")
    (base / "config.yaml").write_text(text)
    return load([base], **arguments)


def refusal(base: Path, text: str, **arguments: Any) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        problem_with(base, text, **arguments)
    return caught.value


EXAMPLE = {
    Kind.INTEGER: "3",
    Kind.NUMBER: "0.25",
    Kind.TRUTH: "true",
    Kind.TEXT: "word",
    Kind.NUMBERS: "[0.5, 0.6]",
    Kind.TEXTS: "[complexity]",
    Kind.MODELS: "[{name: m}]",
    Kind.MAPPING: "{a: [b]}",
    Kind.COUNT_OR_COUNTS: "{complexity: 4}",
    Kind.RANGES: "{complexity: [0, 4.5]}",
}


@pytest.mark.parametrize("key", [key for key in KEYS if key.name != "prompt.template_dir"])
def test_every_key_is_honoured_or_reported_to_have_no_effect(tmp_path, key):
    section, _, name = key.name.rpartition(".")
    value = r"'(\w+)=(\w+)'" if name == "diff_pattern" else EXAMPLE[key.kind]
    text = f"{section}:\n  {name}: {value}\n" if section else f"{name}: {value}\n"

    problem = problem_with(tmp_path, text)

    notices = [notice for notice in problem.notices if f"`{key.name}`" in notice]
    if key.reason:
        assert [notice for notice in notices if "read but without effect" in notice]
        assert problem.suggestions == {}
    elif key.setting and not key.setting.startswith("search.stop_"):
        assert key.setting in problem.suggestions
        assert notices == []
    assert not [notice for notice in problem.notices if "unknown key" in notice]


@pytest.mark.parametrize("key", [*KEYS, *MODEL_KEYS])
def test_every_key_has_one_outcome(key):
    assert [bool(key.setting), bool(key.shapes), bool(key.reason)].count(True) == 1


@pytest.mark.parametrize("key", [key for key in KEYS if key.kind is not Kind.TEXT])
def test_a_value_of_the_wrong_type_is_refused_with_key_value_and_expectation(tmp_path, key):
    section, _, name = key.name.rpartition(".")
    text = f"{section}:\n  {name}: wrong\n" if section else f"{name}: wrong\n"

    error = refusal(tmp_path, text)

    assert f"`{key.name}` must be {key.kind.value}" == error.what
    assert error.value == "'wrong'"
    assert error.where.endswith("config.yaml:2" if section else "config.yaml:1")


@pytest.mark.parametrize(
    "text", ["max_iterations: null", "max_iterations: true", "language: 3", "llm: 3", "- a\n- b"]
)
def test_null_and_truth_are_no_numbers_and_a_section_is_a_mapping(tmp_path, text):
    refusal(tmp_path, text + "\n")


def test_null_means_not_set_where_it_is_allowed(tmp_path):
    text = "llm: {temperature: null}\nearly_stopping_patience: null\nevaluator: {cpu_limit: null}\n"

    problem = problem_with(tmp_path, text)

    assert problem.suggestions == {}
    assert problem.notices == ()


@pytest.mark.parametrize("text", ["", "# nothing\n", "llm:\n"])
def test_an_empty_configuration_sets_nothing(tmp_path, text):
    problem = problem_with(tmp_path, text)

    assert problem.suggestions == {}
    assert problem.notices == ()


def test_a_syntax_error_is_shown_with_file_and_line(tmp_path):
    error = refusal(tmp_path, "max_iterations: 3\nllm: [a\nb: c\n")

    assert error.where == f"{tmp_path}/config.yaml:3"
    assert error.what == "not valid YAML"


@pytest.mark.parametrize("text", ["[" * 500, "a: &a [*a]\nb: *c\n", "a: !!python/object:os.x {}\n"])
def test_hostile_yaml_is_refused_and_not_run(tmp_path, text):
    assert refusal(tmp_path, text).what == "not valid YAML"


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("max_iteration: 3", "max_iterations"),
        ("parallel_evaluations: 4", "evaluator.parallel_evaluations"),
        ("database:\n  num_iland: 4", "database.num_islands"),
        ("llm:\n  models:\n  - name: m\n    temprature: 1", "llm.models.0.temperature"),
    ],
)
def test_an_unknown_key_is_a_warning_that_names_the_closest_known_one(tmp_path, text, near):
    problem = problem_with(tmp_path, text + "\n")

    [notice] = problem.notices
    assert "unknown key" in notice
    assert f"closest known key is `{near}`" in notice


def test_a_key_like_no_other_is_a_warning_without_a_suggestion(tmp_path):
    [notice] = problem_with(tmp_path, "foo: 1\n").notices

    assert notice.endswith("config.yaml:1: unknown key `foo` is ignored.")


def test_an_unknown_key_is_an_error_under_strict(tmp_path):
    error = refusal(tmp_path, "allow_full_rewrites: true\n", strict=True)

    assert "allow_full_rewrites" in error.value


def test_a_repeated_key_is_a_notice_with_both_lines(tmp_path):
    text = "max_iterations: 3\nllm:\n  models: [{name: a}, {name: b}]\nmax_iterations: 4\n"

    problem = problem_with(tmp_path, text)

    assert problem.suggestions["budget.proposals"] == 4
    [notice] = problem.notices
    assert "config.yaml:4: `max_iterations` is given again; what line 1 says is ignored" in notice


def test_a_value_out_of_range_is_refused_by_the_key_of_the_file(tmp_path):
    problem = problem_with(tmp_path, "max_iterations: -5\n")

    with pytest.raises(UsageError, match=r"configuration: `max_iterations`: .* \(-5\)"):
        resolved([], problem.suggestions, problem.suggested_by)


def test_keys_without_effect_are_grouped_by_reason(tmp_path):
    problem = problem_with(
        tmp_path, "checkpoint_interval: 3\ndatabase: {db_path: x, in_memory: true}\n"
    )

    assert len(problem.notices) == 2
    assert problem.notices[0].startswith("`checkpoint_interval`, `database.db_path`: read but")


def test_a_full_configuration_becomes_run_settings(tmp_path):
    problem = problem_with(
        tmp_path,
        """
max_iterations: 50
random_seed: 7
diff_based_evolution: false
early_stopping_patience: 12
convergence_threshold: 0.01
llm:
  primary_model: big
  secondary_model: small
  secondary_model_weight: 0.3
  api_base: http://localhost:8000/v1
  api_key: ${MY_KEY}
  timeout: 30
  parallel_generations: 32
  reasoning_effort: low
  models:
    - name: first
      weight: 2
      temperature: 0.1
      api_key: ${OTHER}
database: {num_islands: 3, migration_rate: 0.2}
prompt: {system_message: Improve it., num_top_programs: 4, num_diverse_programs: 1}
evaluator: {parallel_evaluations: 6}
controller: {task_buffer: 12}
""",
    )

    assert problem.instructions == "Improve it."
    assert problem.suggestions == {
        "budget.proposals": 50,
        "search.seed": 7,
        "search.operators": {"rewrite": 0.7, "function": 0.2, "mend": 0.1},
        "search.stop_patience": 12,
        "search.stop_threshold": 0.01,
        "search.islands": 3,
        "search.migration_rate": 0.2,
        "search.top_programs": 4,
        "search.inspirations": 1,
        "prompts.num_top_programs": 4,
        "prompts.num_diverse_programs": 1,
        "queue.trials_at_once": 6,
        "queue.generating": 12,
        "llm.base_url": "http://localhost:8000/v1",
        "llm.api_key_variable": "MY_KEY",
        "llm.timeout_seconds": 30,
        "llm.parallel_generations": 32,
        "llm.models": [
            {
                "name": "first",
                "weight": 2,
                "temperature": 0.1,
                "api_key_variable": "OTHER",
                "reasoning_effort": "low",
            },
            {"name": "big", "weight": 1.0, "reasoning_effort": "low"},
            {"name": "small", "weight": 0.3, "reasoning_effort": "low"},
        ],
    }


@pytest.mark.parametrize(
    "text",
    [
        "llm:\n  api_key: SECRETSECRET\n",
        "llm: {api_key: 'SECRETSECRET', models: [{name: m, api_key: \"SECRETSECRET\"}]}\n",
        "llm:\n  api_key: &k SECRETSECRET\n  evaluator_models:\n  - api_key: *k\n",
        "defaults: &d\n  api_key: SECRETSECRET\nllm:\n  <<: *d\n",
        "llm:\n  api_key: |\n    SECRETSECRET\n  temperature: 0.5\n",
        "# was sk-SECRETSECRETSECRET\nllm: {temperature: 1}\n",
    ],
)
def test_a_literal_key_is_kept_nowhere(tmp_path, text):
    problem = problem_with(tmp_path, text)

    everything = repr((problem.files, problem.options, problem.suggestions, problem.notices))
    assert "SECRET" not in everything
    assert "SECRET" not in repr(problem)
    again = reload("openevolve", "again", problem.files, problem.options)
    assert (again.digest, again.notices) == (problem.digest, problem.notices)


def test_a_literal_key_is_noticed_with_the_remedy(tmp_path):
    problem = problem_with(tmp_path, "llm: {api_key: abc}\n")

    [notice] = problem.notices
    assert "OPENAI_API_KEY" in notice
    assert "llm.api_key_variable" not in problem.suggestions


def test_keys_are_removed_from_configurations_that_are_not_used_too(tmp_path):
    (tmp_path / "config_phase_2.yaml").write_text("llm: {api_key: SECRETSECRET}\n")

    assert "SECRET" not in repr(problem_with(tmp_path, "max_iterations: 1\n").files)


def test_redaction_leaves_the_rest_of_the_text_alone():
    text = "a: 1 # one\nllm:\n  api_key: 'x' # mine\n  retries: 2\n"

    assert without_secrets(text, "c") == text.replace("'x'", '"<REDACTED>"')


def test_a_whole_string_variable_is_no_secret():
    assert without_secrets("api_key: ${KEY}\n", "c") == "api_key: ${KEY}\n"
    assert without_secrets("api_key: pre${KEY}\n", "c") == 'api_key: "<REDACTED>"\n'


def test_bins_are_the_number_that_is_written(tmp_path):
    text = "database: {archive_size: 1000, feature_bins: 10}\n"

    assert problem_with(tmp_path, text).axes == (Axis("complexity", 10), Axis("diversity", 10))


def test_bins_may_differ_by_axis(tmp_path):
    text = "database: {feature_dimensions: [speed, score], feature_bins: {speed: 4}}\n"

    speed, score = problem_with(tmp_path, text).axes

    assert speed == Axis("speed", 4)
    assert score == Axis("score", 10, scaled=True)


def test_bins_that_are_not_declared_are_left_to_the_run(tmp_path):
    assert all(axis.scaled for axis in problem_with(tmp_path, "random_seed: 1\n").axes)


def test_an_axis_with_a_declared_range_keeps_it_and_another_learns_its_own(tmp_path):
    text = "database: {feature_ranges: {complexity: [0, 500]}}\n"

    complexity, diversity = problem_with(tmp_path, text).axes

    assert complexity == Axis("complexity", 10, 0.0, 500.0, scaled=True)
    assert not diversity.ranged


@pytest.mark.parametrize(
    "ranges",
    [
        *("{complexity: [5, 5]}", "{complexity: [5, 1]}", "{complexity: [1]}", "{speed: [0, 1]}"),
        *("{complexity: [0, .inf]}", "{complexity: [0, .nan]}"),
    ],
)
def test_a_range_that_cannot_be_used_is_refused_with_its_axis(tmp_path, ranges):
    error = refusal(tmp_path, f"database:\n  feature_ranges: {ranges}\n")

    assert ranges[1:5] in error.value
    assert error.where.endswith(":2")
    assert "complexity, diversity" in error.remedy


def test_zero_bins_are_refused_with_the_line(tmp_path):
    assert refusal(tmp_path, "database:\n  feature_bins: 0\n").where == "config.yaml:2"


def test_markers_are_enforced_unless_the_configuration_says_otherwise(tmp_path):
    assert problem_with(tmp_path, "language: python\n").edit.enforce_blocks
    assert not problem_with(tmp_path, "enforce_evolve_blocks: false\n").edit.enforce_blocks


def test_the_form_and_the_length_of_a_child_are_those_of_the_configuration(tmp_path):
    edit = problem_with(tmp_path, "diff_pattern: '<(.*)>(.*)!'\nmax_code_length: 77\n").edit

    assert (edit.diff_pattern, edit.max_code_chars) == ("<(.*)>(.*)!", 77)


@pytest.mark.parametrize("pattern", ["(", "(a)", "a"])
def test_a_diff_pattern_without_two_groups_is_refused(tmp_path, pattern):
    assert "two groups" in refusal(tmp_path, f"diff_pattern: '{pattern}'\n").what


def test_event_mode_of_early_stopping_is_reported_to_have_no_effect(tmp_path):
    problem = problem_with(tmp_path, "early_stopping_patience: -1\nconvergence_threshold: 3.0\n")

    assert problem.suggestions == {}
    assert "equals a threshold" in problem.notices[0]


def test_a_key_variable_that_all_models_name_becomes_the_setting(tmp_path):
    text = "llm:\n  models:\n  - {name: a, api_key: '${K}'}\n  - {name: b, api_key: '${K}'}\n"

    assert problem_with(tmp_path, text).suggestions["llm.api_key_variable"] == "K"


@pytest.mark.parametrize(("metric", "notices"), [("combined_score", 0), ("speed", 1)])
def test_stopping_watches_the_fitness(tmp_path, metric, notices):
    text = f"early_stopping_patience: 3\nearly_stopping_metric: {metric}\n"

    assert len(problem_with(tmp_path, text).notices) == notices


def test_every_suggestion_is_a_setting_of_a_run(tmp_path):
    lines = [
        f"{key.name.rpartition('.')[0] or '-'}|{key.name.rpartition('.')[2]}: {EXAMPLE[key.kind]}"
        for key in KEYS
        if key.name not in ("prompt.template_dir", "diff_pattern")
    ]
    sections: dict[str, list[str]] = {}
    for line in lines:
        sections.setdefault(line.split("|")[0], []).append(line.split("|", 1)[1])
    text = "\n".join(sections.pop("-"))
    for name, entries in sections.items():
        text += f"\n{name}:\n" + "\n".join(f"  {entry}" for entry in entries)

    suggestions = problem_with(tmp_path, text).suggestions

    assert len(suggestions) > 20
    assert [name for name in suggestions if not known_setting(*name.split(".", 1))] == []


def test_templates_travel_with_the_problem_from_wherever_they_are(tmp_path):
    (tmp_path / "problem").mkdir()
    templates = tmp_path / "prompts"
    templates.mkdir()
    (templates / "diff_user.txt").write_text("Do {current_program}")
    (templates / "expert.txt").write_text("You are an expert.")
    (templates / "evolution_history.txt").write_text("")
    (templates / "fragments.json").write_text('{"fitness_improved": "better"}')

    problem = problem_with(
        tmp_path / "problem",
        "prompt: {template_dir: ../prompts, system_message: expert,"
        " template_variations: {greeting: [hi, hello]}}\n",
    )
    again = reload("openevolve", "again", problem.files, problem.options)

    assert again.instructions == "You are an expert."
    assert again.suggestions["prompts.templates"]["diff_user"] == "Do {current_program}"
    assert again.suggestions["prompts.templates"]["evolution_history"] == ""
    assert again.suggestions["prompts.template_variations"] == {"greeting": ["hi", "hello"]}
    assert [notice for notice in again.notices if "fragments.json" in notice]
    assert again.suggestions == problem.suggestions


def test_templates_in_the_problems_own_folder_replace_the_packaged_ones(tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "prompts" / "diff_user.txt").write_text("Mine: {current_program}")
    (tmp_path / "prompts" / "top_program.txt").write_text("{score}")
    (tmp_path / "prompts" / "system_message.txt").write_text("You are mine.")
    (tmp_path / "prompts" / "dif_user.txt").write_text("a slip")
    (tmp_path / "prompts" / "question.txt").write_text("the evaluator's own business")
    (tmp_path / "elsewhere" / "top_program.txt").write_text("configured {score}")

    problem = problem_with(tmp_path, "prompt: {template_dir: elsewhere}\n")
    again = reload("openevolve", "again", problem.files, problem.options)

    templates = again.suggestions["prompts.templates"]
    assert templates["diff_user"] == "Mine: {current_program}"
    assert templates["top_program"] == "configured {score}"
    assert again.instructions == "You are mine."
    assert "question" not in templates
    [notice] = [notice for notice in again.notices if "dif_user" in notice]
    assert "the closest is prompts/diff_user.txt" in notice


def test_a_template_folder_that_does_not_exist_is_refused(tmp_path):
    assert "template_dir" in refusal(tmp_path, "prompt: {template_dir: nowhere}\n").what


def rows(table: str) -> list[tuple[str, str]]:
    """Returns the keys of a table, each with its right column; `NAME` is a key's last part."""
    found = []
    for row in table.splitlines():
        if row.startswith("| `"):
            keys, _, here = row[2:-2].partition(" | ")
            for key in keys.split(", "):
                name = key.strip("`").rpartition(".")[2]
                found.append((key, re.sub(r"\bNAME`$", f"{name}`", here)))
    return sorted(found)


def effects(keys: Iterable[Key]) -> list[tuple[str, str]]:
    """Returns the keys that have an effect, each with the setting or the part that it shapes."""
    return sorted(
        (f"`{key.name}`", f"`{key.setting}`" if key.setting else key.shapes)
        for key in keys
        if not key.reason
    )


def reasons(keys: Iterable[Key], section: str = "") -> list[tuple[str, str]]:
    """Returns the keys without effect, each with the reason."""
    return [(f"`{section}{key.name}`", key.reason) for key in keys if key.reason]


def test_the_documentation_has_the_table_of_the_code():
    text = (Path(__file__).parents[4] / "docs" / "openevolve.md").read_text()
    of_all, rest = text.partition("## Every key")[2].split("Entries of `llm.models`")
    of_models, without_effect = rest.split("Keys without effect")

    assert rows(of_all) == effects(KEYS)
    assert rows(of_models) == effects(MODEL_KEYS)
    assert rows(without_effect) == sorted(
        [*reasons(KEYS), *reasons(MODEL_KEYS, section="llm.models.")]
    )


def test_judges_are_models_of_the_role_judge(tmp_path):
    text = """
llm:
  models: [{name: writer}]
  evaluator_models: [{name: strict, weight: 2, temperature: 0.1, api_base: 'http://j/v1'}]
evaluator: {use_llm_feedback: true, llm_feedback_weight: 0.3}
"""
    llm = resolved([], problem_with(tmp_path, text).suggestions).settings.llm

    assert (llm.feedback, llm.feedback_weight) == (True, 0.3)
    [judge] = llm.models_of(Role.JUDGE)
    assert (judge.name, judge.weight, judge.temperature) == ("strict", 2.0, 0.1)
    assert judge.base_url == "http://j/v1"


def test_naming_a_model_drops_the_problems_judges(tmp_path):
    text = "llm: {models: [{name: writer}], evaluator_models: [{name: strict}]}"
    suggestions = problem_with(tmp_path, text).suggestions

    llm = resolved([from_assignments(["llm.model=mine"])], suggestions).settings.llm

    assert [model.name for model in llm.models_of(Role.JUDGE)] == ["mine"]


def test_judges_without_a_model_are_left_out_or_refused(tmp_path):
    text = "evaluator: {use_llm_feedback: true}"
    run, notices = without_judges(resolved([], problem_with(tmp_path, text).suggestions))

    assert not run.settings.llm.feedback
    assert "use_llm_feedback" in notices[0]
    with pytest.raises(UsageError, match="judges"):
        without_judges(resolved([from_assignments(["llm.feedback=true"])], {}))


_NUMERIC = {
    Kind.NUMBER: "{}",
    Kind.NUMBERS: "[0.5, {}]",
}
ENDLESS = (".inf", "-.inf", ".nan", "1e999", "1" + "0" * 400)


@pytest.mark.parametrize("number", ENDLESS, ids=["inf", "-inf", "nan", "1e999", "a long integer"])
@pytest.mark.parametrize("key", [key for key in KEYS if key.kind in _NUMERIC], ids=str)
def test_a_number_that_is_not_finite_is_refused_wherever_one_is_meant(
    key: Key, number: str
) -> None:
    text = _NUMERIC[key.kind].format(number)
    section, dot, name = key.name.rpartition(".")
    written = f"{section}: {{{name}: {text}}}" if dot else f"{name}: {text}"

    with pytest.raises(ProblemError, match=rf"`{key.name}` must be .*finite"):
        read(written, "config.yaml")


@pytest.mark.parametrize("key", [key for key in MODEL_KEYS if key.kind is Kind.NUMBER], ids=str)
def test_a_number_of_a_model_is_finite(key: Key) -> None:
    with pytest.raises(ProblemError, match=rf"`llm.models.0.{key.name}` must be a finite number"):
        read(f"llm: {{models: [{{name: m, {key.name}: .inf}}]}}", "config.yaml")


@pytest.mark.parametrize("key", [key for key in KEYS if key.kind is Kind.INTEGER], ids=str)
def test_an_integer_that_no_column_of_the_ledger_holds_is_refused_by_its_key(key: Key) -> None:
    section, dot, name = key.name.rpartition(".")
    for number in (".inf", ".nan", "1e25", "-1e25", str(2**63), "1" + "0" * 400):
        written = f"{section}: {{{name}: {number}}}" if dot else f"{name}: {number}"
        with pytest.raises(ProblemError, match=rf"`{key.name}` must be an integer"):
            read(written, "config.yaml")


def test_numbers_of_bins_are_integers_that_the_ledger_holds() -> None:
    for given in ("1e25", "{complexity: 10000000000000000000000000}"):
        with pytest.raises(ProblemError, match=r"`database.feature_bins` must be an integer"):
            read(f"database: {{feature_bins: {given}}}", "config.yaml")
