"""Problems described by a `problem.yaml`: what its keys do, and where an error is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.adapters.problems import load
from app.adapters.problems.building import MOST_TRIALS
from app.adapters.problems.described.description import (
    FILE,
    BuildSection,
    Description,
    GameSection,
    ProgramSection,
    StageSection,
    ValidationSection,
    schema,
)
from app.domain.evaluation import Trial
from app.domain.problem import Mode, Outcome, Problem, ProblemError

ROOT = Path(__file__).resolve().parents[4]
LEAST = """\
seeds: {first: a.py}
stages:
  - name: evaluate
"""


@pytest.fixture
def described(tmp_path: Path) -> Any:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("x = 2\n")
    (tmp_path / "evaluator.py").write_text(
        "def evaluate(path):\n    return {'combined_score': 1}\n"
    )
    (tmp_path / "secret.json").write_text("[]")

    def problem(text: str = "", **options: Any) -> Problem:
        (tmp_path / FILE).write_text(LEAST + text if "seeds" not in text else text)
        return load([tmp_path], options=options)

    return problem


def test_the_least_description_is_a_problem(described):
    problem = described()

    assert (problem.format, problem.stages, problem.baselines) == (
        "problem",
        ("evaluate",),
        {"first": problem.seeds[0].id},
    )
    assert problem.first_job().function == "evaluate"
    assert problem.first_job().limits.wall_seconds == 60.0
    assert problem.first_job().mode is Mode.GUARDED


def test_stages_have_limits_cases_and_thresholds_of_their_own(described):
    problem = described(
        "seeds: {first: a.py, second: b.py}\n"
        "stages:\n"
        "  - {name: quick, seconds: 5, gate: -20, cases: [a, b]}\n"
        "  - {name: full, memory_mib: 64, together: true, cases: [c, d]}\n"
        "every_case: false\n"
    )

    assert problem.thresholds == (-20.0,)
    assert problem.trials_of("p", "quick") == (
        Trial("quick", ("p",), ("a",)),
        Trial("quick", ("p",), ("b",)),
    )
    [full] = problem.trials_of(problem.seeds[1].id, "full")
    job = problem.prepare(full, {problem.seeds[1].id: problem.seeds[1]})
    assert (job.cases, job.limits.memory_mib) == (("c", "d"), 64)
    assert problem.first_job().limits.wall_seconds == 5.0
    assert problem.cases.whole is False
    assert len(problem.seeds) == 2


def test_the_cpu_time_of_a_stage_follows_the_timeout_in_force(described):
    stage = "stages: [{name: evaluate, seconds: 5}]\n"

    assert described(stage).first_job().limits.cpu_seconds == 10.0
    longer = described(stage, **{"sandbox.wall_seconds": 60.0}).first_job().limits
    assert (longer.wall_seconds, longer.cpu_seconds) == (60.0, 120.0)


def test_a_gate_that_compares_programs_becomes_a_setting_of_the_run(described):
    problem = described(
        "seeds: {first: a.py}\n"
        "stages: [{name: one}, {name: two, gate: top 3 of 20}, {name: three}]\n"
        "settings: {search.strategy: greedy}\n"
    )

    assert problem.thresholds == ()
    assert problem.suggestions == {
        "search.gates": ["quantile 0 of 1", "top 3 of 20"],
        "search.strategy": "greedy",
    }


def test_the_rest_of_the_description_shapes_the_problem(described):
    problem = described(
        "instructions: Find x.\n"
        "axes: [{name: length, bins: 4, low: 0, high: 9}]\n"
        "requirements: ['tinypackage==1.0']\n"
        "environment: {LEVEL: '3'}\n"
        "imports: {allow: [math], deny: [cmath]}\n"
        "enforce_blocks: false\n"
    )
    evaluator = problem.first_job().evaluator

    assert problem.instructions == "Find x."
    assert [(axis.name, axis.bins, axis.high) for axis in problem.axes] == [("length", 4, 9.0)]
    assert evaluator.files["requirements.txt"] == b"tinypackage==1.0\n"
    assert evaluator.environment == {"LEVEL": "3"}
    assert problem.imports.allow == ("math",)
    assert problem.imports.deny == ("cmath",)
    assert problem.edit.enforce_blocks is False


def test_the_evaluator_mode_and_longest_child_are_those_of_the_keys(described):
    problem = described("evaluator: b.py\nmode: compatible\nmax_code_chars: 77\n")

    job = problem.first_job()
    assert (job.evaluator.entry, job.mode) == ("b.py", Mode.COMPATIBLE)
    assert problem.edit.max_code_chars == 77
    assert described().edit.max_code_chars == 10_000


def test_validation_has_an_evaluator_cases_and_limits_of_its_own(described):
    problem = described(
        "validation: {name: unseen, evaluator: b.py, cases: [u, v], seconds: 7,\n"
        "  references: {published: b.py}}\n"
    )

    [published] = problem.references.values()
    trials = problem.trials_of(published.id, problem.validation)
    job = problem.prepare(trials[1], {published.id: published})
    assert (problem.stages, list(problem.references)) == (("evaluate",), ["published"])
    assert published not in problem.seeds
    assert (job.function, job.cases, job.limits.wall_seconds) == ("unseen", ("v",), 7.0)
    assert (job.evaluator.entry, problem.first_job().evaluator.entry) == ("b.py", "evaluator.py")
    result = Outcome(b'{"metrics": {"v": 2.0}, "artifacts": {}}', None)
    evaluation = problem.interpret(trials[1], {published.id: published}, result)
    assert evaluation.scores == {published.id: {"v": 2.0}}


def test_hidden_files_keep_a_problem_out_of_compatible_mode(described):
    assert described("hidden: [secret.json]\n").first_job().mode is Mode.GUARDED

    with pytest.raises(ProblemError, match=r"problem.yaml:4: hidden files can be read"):
        described("hidden: [secret.json]\n", **{"sandbox.mode": "compatible"})
    with pytest.raises(ProblemError, match=r"problem.yaml:4: hidden files can be read"):
        described("hidden: [secret.json]\nmode: compatible\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stage: 3\n", "problem.yaml:4: `stage`: extra inputs are not permitted"),
        ("max_code_chars: many\n", "problem.yaml:4: `max_code_chars`: input should be a valid int"),
        ("axes:\n  - name: a\n    bins: 0\n", "yaml:6: `axes.0.bins`: input should be"),
        ("axes:\n  - {name: a, low: 3}\n", "problem.yaml:5: `axes.0`: a range needs both"),
        ("evaluator: scores.py\n", r"problem.yaml:4: `evaluator` names a file .*\(scores.py\)"),
        ("hidden: [c.json]\n", r"problem.yaml:4: `hidden.0` names a file"),
        ("seeds: {first: c.py}\nstages: [{name: evaluate}]\n", "yaml:1: `seeds.first` names"),
        ("seeds: {first: a.py}\nstages: [{name: a, gate: x}, {name: b}]\n", "`stages.0.gate`"),
        ("seeds: {first: a.py}\nstages: [{name: a, gate: 1}]\n", "the last stage has a gate"),
        ("seeds: {first: a.py}\nstages: [{name: a}, {name: a}]\n", "two stages are called 'a'"),
        ("validation: {name: evaluate}\n", "two stages are called 'evaluate'"),
        ("validation: {name: v, evaluator: v.py}\n", r"yaml:4: `validation.evaluator` names"),
        ("validation: {name: v, references: {a: c.py}}\n", "`validation.references.a` names"),
        ("validation: {name: v}\nplayers: 2\n", "`validation` measures programs alone"),
        ("seeds: {first: a.py}\n", "problem.yaml: `stages`: field required"),
        ("axes: [\n", r"problem.yaml:\d: not valid YAML"),
        ("settings: {a: 2026-13-01}\n", r"problem.yaml: not valid YAML \(month must be"),
        ("settings: &own {a: *own}\n", r"problem.yaml:4: `settings"),
    ],
)  # fmt: skip
def test_an_error_names_line_and_key(described, text, message):
    with pytest.raises(ProblemError, match=message):
        described(text)


def test_the_schema_of_the_documents_is_that_of_the_code():
    kept = json.loads((ROOT / "docs/problem.schema.json").read_text())

    assert kept == schema(), "write `schema()` there, with indent=2"


JSON_TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def fits(value: Any, rule: dict[str, Any], of: dict[str, Any]) -> bool:
    """Returns whether a value fits a JSON Schema, of the keywords that `schema()` uses."""
    if "$ref" in rule:
        return fits(value, of["$defs"][rule["$ref"].rpartition("/")[2]], of)
    if "anyOf" in rule and not any(fits(value, one, of) for one in rule["anyOf"]):
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if "type" in rule:
        kind = JSON_TYPES[rule["type"]]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            return False
    if isinstance(value, str):
        return re.search(rule.get("pattern", ""), value) is not None
    if isinstance(value, int | float):
        low, high = rule.get("minimum", value), rule.get("maximum", value)
        return low <= value <= high and value > rule.get("exclusiveMinimum", value - 1)
    if isinstance(value, list):
        items = rule.get("items", {})
        return len(value) >= rule.get("minItems", 0) and all(fits(v, items, of) for v in value)
    if isinstance(value, dict):
        known, others = rule.get("properties", {}), rule.get("additionalProperties", {})
        rules = {key: known.get(key, others) for key in value}
        return (
            {*rule.get("required", ())} <= {*value}
            and len(value) >= rule.get("minProperties", 0)
            and all(rules[key] is not False for key in value)
            and all(fits(part, rules[key], of) for key, part in value.items())
        )
    return True


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("", True),
        ("validation: {name: v, seconds: 7, references: {a: a.py}}\n", True),
        ("program: {root: root, evolve: []}\n", False),
        ("program: {root: root, evolve: ['*.py'], build: {command: []}}\n", False),
        ("program: {root: root, evolve: ['*.py'], new_files: -1}\n", False),
        ("axes: [{name: length, bins: 4, low: 0, high: 9}]\n", True),
        ("settings: {search.islands: 3}\nmode: guarded\nplayers: 1\n", True),
        ("stage: 3\n", False),
        ("max_code_chars: many\n", False),
        ("max_code_chars: '9'\n", False),
        ("max_code_chars: 0\n", False),
        ("axes: [{name: a, bins: 0}]\n", False),
        ("axes: [{name: a, bins: 10001}]\n", False),
        ("axes: [{bins: 3}]\n", False),
        ("axes: {name: a}\n", False),
        ("players: 3\n", False),
        ("mode: open\n", False),
        ("every_case: perhaps\n", False),
        ("every_case: 1\n", False),
        ("hidden: secret.json\n", False),
        ("instructions: 3\n", False),
        ("environment: {LEVEL: 3}\n", False),
        ("validation: {name: 1st}\n", False),
        ("validation: {name: v, seconds: 0}\n", False),
        ("validation: {name: v, seconds: '7'}\n", False),
        ("game: {lost_games: lose}\nplayers: 2\n", False),
        ("imports: {forbid: [os]}\n", False),
        ("seeds: {}\nstages: [{name: a}]\n", False),
        ("seeds: {first: a.py}\nstages: []\n", False),
        ("seeds: {first: a.py}\nstages: [{name: a, gate: [1]}, {name: b}]\n", False),
        ("seeds: {first: a.py}\nstages: [{name: a, memory_mib: 1.5}]\n", False),
        ("seeds: {first: a.py}\n", False),
    ],
)
def test_the_schema_and_the_loader_agree_on_each_value(described, text, good):
    document = yaml.safe_load(text if "seeds" in text else LEAST + text)
    assert fits(document, schema(), schema()) is good
    if good:
        described(text)
    else:
        with pytest.raises(ProblemError):
            described(text)


def test_every_key_is_described_in_the_documents():
    text = (ROOT / "docs/problem-yaml.md").read_text()

    assert [name for name in Description.model_fields if f"`{name}`" not in text] == []


WORDS = {
    "seeds": "required without `program`",
    "stages.gate": "none",
    "stages.together": f"from {MOST_TRIALS + 1} cases on",
    "validation.evaluator": "that of the stages",
    "game": "see below",
    "axes": "`complexity`",
    "imports": "every module",
    "mode": "`guarded`; `compatible` where programs are not Python",
}
"""Defaults that the page says in words."""


def default(where: str, field: FieldInfo) -> str:
    """Returns a default as the page of the documents says it."""
    if where in WORDS or field.is_required():
        return WORDS.get(where, "required")
    match field.get_default(call_default_factory=True):
        case None | "" | [] | {}:
            return "none"
        case bool() as truth:
            return f"`{str(truth).lower()}`"
        case str() as text:
            return f"`{text}`"
        case number:
            return f"{number:g}"


def test_every_default_of_the_documents_is_that_of_the_code():
    tables: dict[str, type[BaseModel]] = {
        "": Description,
        "stages.": StageSection,
        "validation.": ValidationSection,
        "program.": ProgramSection,
        "build.": BuildSection,
        "game.": GameSection,
    }
    page = (ROOT / "docs/problem-yaml.md").read_text().replace("as of a stage", "")
    texts = re.split(r"^\| Key.* \| Default \| Meaning \|$", page, flags=re.M)[1:]

    for (section, model), text in zip(tables.items(), texts, strict=True):
        rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|", text, re.M)
        said = {
            name: given
            for names, defaults in rows
            if defaults
            for name, given in zip(re.findall(r"\w+", names), defaults.split(", "), strict=True)
        }
        assert said == {name: default(section + name, model.model_fields[name]) for name in said}
        assert len(said) > 2


def test_the_example_of_the_documents_can_be_read():
    text = (ROOT / "docs/problem-yaml.md").read_text()
    [example] = [part for part in text.split("```") if part.startswith("yaml\n")]

    assert Description.model_validate(yaml.safe_load(example.removeprefix("yaml\n")))


def test_a_program_of_several_files_needs_no_seed():
    document = {"program": {"root": "library", "evolve": ["*.py"]}, "stages": [{"name": "a"}]}

    assert fits(document, schema(), schema())
    assert Description.model_validate(document).seeds == {}
