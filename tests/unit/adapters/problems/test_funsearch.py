"""Specification files of FunSearch: what is read out of their text, and their inputs."""

import ast
from pathlib import Path
from typing import Any

import pytest

from app.adapters.problems import inputs, load
from app.adapters.problems.funsearch.specification import is_specification, parsed, runnable
from app.domain.evaluation import Trial
from app.domain.problem import Problem, ProblemError
from app.domain.source import regions

SPECIFICATION = '''"""Finds large numbers."""

import funsearch, functools


@funsearch.run
def evaluate(n):
  return float(priority(n))

LIMIT = 9

class Kept:
    pass

@funsearch.evolve
def priority(n):
  """Returns a number."""
  return n
'''
COMMENTED = SPECIFICATION.replace("@", "# @").replace("funsearch, functools", "re")
NAMED = "def evaluate(params):\n    return priority(params), 1\n\ndef priority(n):\n    return n\n"
ALIASED = SPECIFICATION.replace("funsearch, functools", "funsearch as fs").replace(
    "@funsearch", "@fs"
)
IMPORTED = SPECIFICATION.replace(
    "import funsearch, functools", "from funsearch import run, evolve as grow"
)
IMPORTED = IMPORTED.replace("@funsearch.run", "@run").replace("@funsearch.evolve", "@grow")
ON_LINES = SPECIFICATION.replace("funsearch.run", "funsearch.run(\n    # scores\n)")
PLAIN = "def evaluate(path):\n    return {'combined_score': 1}\n"


def written(folder: Path, text: str, name: str = "numbers.py", **options: Any) -> Problem:
    (folder / name).write_text(text)
    return load(
        [folder / name], options={f"problem.{key}": value for key, value in options.items()}
    )


@pytest.mark.parametrize(
    "text",
    [
        SPECIFICATION,
        SPECIFICATION.replace("evolve\n", "evolve()\n").replace("run\n", "run()\n"),
        SPECIFICATION.replace("import funsearch, functools\n", ""),
        ALIASED,
        IMPORTED,
        ON_LINES,
        COMMENTED,
        NAMED,
    ],
    ids=["bare", "called", "no_import", "alias", "imported", "on_lines", "in_comments", "by_name"],
)
def test_the_two_functions_are_found(text):
    found = parsed(text, "x.py")

    assert (found.run, found.evolve) == ("evaluate", "priority")
    assert is_specification(text)
    assert is_specification(text, decorated=True) is (text != NAMED)


def test_only_the_function_that_evolves_may_change_and_all_else_stays():
    program = parsed(SPECIFICATION, "x.py").program
    [body] = regions.bodies(program)

    assert body.startswith("def priority(n):\n")
    assert body.endswith("  return n\n")
    assert "LIMIT = 9" in program
    assert "class Kept" in program


@pytest.mark.parametrize("mark", ["run", "evolve"])
def test_two_functions_with_one_decorator_are_refused_with_their_line(mark):
    twice = f"{SPECIFICATION}\n@funsearch.{mark}\ndef third(n):\n    return n\n"

    with pytest.raises(ProblemError, match=rf"x.py:21: Expected 1 function decorated .*{mark}"):
        parsed(twice, "x.py")


def test_the_system_prompt_is_the_instructions_and_no_part_of_a_program():
    prompt = '### SYSTEM PROMPT\n"""You pack bins."""\n### END SYSTEM PROMPT\n'
    found = parsed(prompt + SPECIFICATION, "x.py")

    assert found.instructions == "You pack bins."
    assert "SYSTEM PROMPT" not in found.program
    assert parsed(SPECIFICATION, "x.py").instructions == "Finds large numbers."


@pytest.mark.parametrize("text", [SPECIFICATION, ALIASED, IMPORTED, ON_LINES])
def test_a_program_runs_without_the_package_of_the_decorators(text):
    imported = "\n".join(line for line in text.splitlines() if "import" in line)

    names: dict[str, Any] = {}
    exec(runnable(text).replace(imported, ""), names)

    assert names["evaluate"](3) == 3.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (8, {"8": 8}),
        ([3, 4], {"3": 3, "4": 4}),
        ("3,4,5", {"3": 3, "4": 4, "5": 5}),
        ("(11, 4)", {"(11, 4)": (11, 4)}),
        ("(11, 4), (12, 5)", {"(11, 4)": (11, 4), "(12, 5)": (12, 5)}),
        ("{'small': [1], 'large': [1, 2]}", {"small": [1], "large": [1, 2]}),
        ("'Ridged', 'Flat'", {"Ridged": "Ridged", "Flat": "Flat"}),
        ([list(range(30)), [1]], {"input 1": list(range(30)), "input 2": [1]}),
        ([1, 1], {"input 1": 1, "input 2": 1}),
    ],
)
def test_inputs_are_named_by_their_text_or_their_number(given, expected):
    assert ast.literal_eval(inputs.literal(given).decode()) == expected


@pytest.mark.parametrize(
    ("name", "text"), [("in.json", '{"a": 1, "b": [2]}'), ("in.txt", "{'a': 1, 'b': [2]}")]
)
def test_inputs_are_read_from_a_file(tmp_path, name, text):
    (tmp_path / name).write_text(text)

    assert inputs.names(inputs.literal(str(tmp_path / name))) == ("a", "b")


@pytest.mark.parametrize("given", ["no such thing", "import os", "[]", "f(1)"])
def test_inputs_that_are_no_literal_and_no_file_are_refused(given):
    with pytest.raises(ProblemError, match=r"problem\.inputs: .*Write inputs as"):
        inputs.literal(given)


def test_few_inputs_are_a_trial_each_and_many_are_one_trial(tmp_path):
    few = written(tmp_path, SPECIFICATION, inputs=[1, 2])
    many = written(tmp_path, SPECIFICATION, inputs=list(range(9)))

    assert few.trials_of("p", "evaluate") == (
        Trial("evaluate", ("p",), ("1",)),
        Trial("evaluate", ("p",), ("2",)),
    )
    assert few.first_job().cases == ("1",)
    assert few.first_job().limits.wall_seconds == 30.0
    [trial] = many.trials_of("p", "evaluate")
    assert len(trial.cases) == 9
    assert many.first_job().limits.wall_seconds == 270.0


def test_a_specification_without_its_input_is_refused_with_the_option(tmp_path):
    with pytest.raises(ProblemError, match=r"`evaluate` takes an input.*problem\.inputs=8"):
        written(tmp_path, SPECIFICATION)
    with pytest.raises(ProblemError, match="takes no input"):
        written(tmp_path, SPECIFICATION.replace("(n):\n  return f", "():\n  return f"), inputs=8)


@pytest.mark.parametrize("parameters", ["", "_", "task='Ridged'"])
def test_a_function_that_needs_no_input_is_given_none(tmp_path, parameters):
    text = NAMED.replace("evaluate(params)", f"evaluate({parameters})").replace("(params)", "(1)")

    assert written(tmp_path, text).first_job().cases == ()


def test_a_folder_with_one_specification_and_no_evaluator_is_a_problem(tmp_path):
    folder = tmp_path / "caps"
    folder.mkdir()
    (folder / "tables.py").write_text("TABLE = [1]\n")
    (folder / "spec.txt").write_text(SPECIFICATION)
    problem = load([folder], options={"problem.inputs": 3})

    assert (problem.format, problem.name) == ("funsearch", "caps")
    assert "tables.py" in problem.first_job().evaluator.files

    (folder / "evaluator.py").write_text(PLAIN)
    (folder / "initial_program.py").write_text(SPECIFICATION)
    assert load([folder]).format == "openevolve"


def test_an_option_of_another_format_is_refused(tmp_path):
    (tmp_path / "evaluator.py").write_text(
        "def evaluate(path):\n    return {'combined_score': 1}\n"
    )
    (tmp_path / "initial_program.py").write_text("x = 1\n")

    with pytest.raises(ProblemError, match=r"problem\.inputs: .* openevolve takes no such option"):
        load([tmp_path], options={"problem.inputs": 3})


def test_another_scoring_or_input_is_another_problem(tmp_path):
    digests = {
        written(tmp_path, SPECIFICATION, inputs=3).digest,
        written(tmp_path, SPECIFICATION, inputs=4).digest,
        written(tmp_path, SPECIFICATION, inputs=3, scoring="mean").digest,
    }

    assert len(digests) == 3
    with pytest.raises(ProblemError, match=r"problem\.scoring: unknown scoring"):
        written(tmp_path, SPECIFICATION, inputs=3, scoring="median")
