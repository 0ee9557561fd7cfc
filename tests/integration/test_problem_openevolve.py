"""OpenEvolve folders, as they are, through the real sandbox: load, prepare, run, interpret."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.adapters.problems import load
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.evaluation import Evaluation, FailureKind, Trial, fitness
from app.domain.problem import Problem
from app.domain.program import Program
from tests.contracts.sandbox import last_outcome

IMPORTING = """
import importlib.util

def program_of(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def returning(sandbox: ProcessSandbox, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An evaluator that returns whatever a Python expression says, in one cell for all tests."""
    evaluator = f"{IMPORTING}\ndef evaluate(path):\n    return eval(program_of(path).ANSWER)\n"
    folder = tmp_path_factory.mktemp("returning")
    problem = written(folder, evaluator, "ANSWER = '{}'\n", {})

    def evaluated(expression: str) -> Evaluation:
        program = Program(f"ANSWER = {expression!r}\n")
        tried, programs = Trial("evaluate", (program.id,)), {program.id: program}
        return problem.interpret(tried, programs, sandbox.run(problem.prepare(tried, programs)))

    return evaluated


@pytest.fixture
def evaluate(sandbox: ProcessSandbox, tmp_path: Path) -> Any:
    def evaluated(
        evaluator: str, program: str = "def f(x):\n    return x + 1\n", **files: str
    ) -> Evaluation:
        problem = written(tmp_path, evaluator, program, files)
        return trial(sandbox, problem, problem.final_stage)

    return evaluated


def written(base: Path, evaluator: str, program: str, files: dict[str, str]) -> Problem:
    for name, text in {"evaluator.py": evaluator, "initial_program.py": program, **files}.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
    return load([base])


def trial(sandbox: ProcessSandbox, problem: Problem, stage: str) -> Evaluation:
    seed = problem.seeds[0]
    tried, programs = Trial(stage, (seed.id,)), {seed.id: seed}
    outcome = last_outcome(sandbox, problem.prepare(tried, programs))
    return problem.interpret(tried, programs, outcome)


def score(evaluation: Evaluation) -> float | None:
    assert evaluation.failure is None, evaluation.failure
    [player] = evaluation.scores
    return fitness(player, [evaluation])


def test_a_dict_of_metrics_is_an_evaluation(evaluate):
    evaluation = evaluate(
        IMPORTING + "def evaluate(path):\n    return {'combined_score': program_of(path).f(2)}\n"
    )

    assert (score(evaluation), evaluation.artifacts) == (3.0, {})
    assert evaluation.verified
    assert evaluation.wall_seconds > 0


def test_openevolves_evaluation_result_can_be_imported(evaluate):
    evaluation = evaluate(
        IMPORTING
        + """
from openevolve.evaluation_result import EvaluationResult

def evaluate(program_path):
    value = program_of(program_path).f(1)
    return EvaluationResult(metrics={"a": value, "b": 4}, artifacts={"log": "seen", "raw": b"xy"})
"""
    )

    assert score(evaluation) == 3.0
    assert evaluation.artifacts == {"log": "seen", "raw": "xy"}


def test_files_beside_the_evaluator_are_found_relative_to_it(evaluate):
    evaluation = evaluate(
        "from pathlib import Path\nimport weights\n"
        "def evaluate(path):\n"
        "    table = (Path(__file__).parent / 'tables' / 'one.txt').read_text()\n"
        "    return {'combined_score': weights.WEIGHT * float(table)}\n",
        **{"weights.py": "WEIGHT = 2.0\n", "tables/one.txt": "21"},
    )

    assert score(evaluation) == 42.0


def test_a_program_in_another_language_is_a_file_with_its_suffix(sandbox, tmp_path):
    (tmp_path / "initial_program.rs").write_text("fn main() {}\n")
    (tmp_path / "evaluator.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "def evaluate(path):\n"
        "    text = Path(os.environ['EVOQ_PROGRAM_SOURCE']).read_text()\n"
        "    return {'combined_score': float(path.endswith('.rs')), 'length': len(text)}\n"
    )
    problem = load([tmp_path])

    evaluation = trial(sandbox, problem, "evaluate")

    assert score(evaluation) == 1.0


def test_a_coroutine_function_is_awaited(evaluate):
    assert score(evaluate("async def evaluate(path):\n    return {'combined_score': 5}\n")) == 5.0


def test_each_stage_is_called_by_itself(sandbox, tmp_path):
    evaluator = (
        "def evaluate_stage1(path, quick=True):\n    return {'a': 1.0, 'ok': True}\n"
        "def evaluate_stage2(path):\n    return {'combined_score': 2.0}\n"
        "def evaluate(path):\n    raise RuntimeError('never called')\n"
    )
    problem = written(tmp_path, evaluator, "x = 1\n", {})

    assert problem.stages == ("evaluate_stage1", "evaluate_stage2")
    first, second = (trial(sandbox, problem, stage) for stage in problem.stages)
    assert score(first) == 1.0
    [player] = second.scores
    assert fitness(player, [first, second]) == 2.0


@pytest.mark.parametrize("value", ["'good'", "None", "3.5", "[1]", "('a', 1)"])
def test_a_result_that_is_no_dict_is_named_in_the_failure(returning, value):
    failure = returning(value).failure

    assert failure.kind is FailureKind.INVALID_RESULT
    assert "not a dict" in failure.detail


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "10**400", "1j", "'1'", "[1]"])
def test_a_score_that_is_no_finite_number_never_wins(returning, value):
    failure = returning(f"{{'combined_score': {value}}}").failure

    assert failure.kind is FailureKind.INVALID_RESULT
    assert "combined_score" in failure.detail


def test_numpys_numbers_are_numbers(returning):
    numpy = "__import__('numpy')"
    evaluation = returning(
        f"{{'combined_score': {numpy}.float32(0.5), 'n': {numpy}.int64(3), 'ok': {numpy}.bool_(1)}}"
    )

    assert score(evaluation) == 0.5
    [metrics] = evaluation.metrics.values()
    assert metrics == {"combined_score": 0.5, "n": 3.0}


def test_a_program_that_raises_is_a_runtime_failure_with_its_line(evaluate):
    evaluation = evaluate(
        IMPORTING + "def evaluate(path):\n    return {'a': program_of(path).f(0)}\n",
        "def f(x):\n    return 1 / x\n",
    )

    assert evaluation.failure.kind is FailureKind.RUNTIME
    assert "ZeroDivisionError" in evaluation.failure.detail
    assert evaluation.scores == {}


def test_a_program_that_does_not_end_is_a_timeout(evaluate):
    evaluation = evaluate(
        IMPORTING + "def evaluate(path):\n    return {'a': program_of(path).f(0)}\n",
        "def f(x):\n    while True:\n        pass\n",
        **{"config.yaml": "evaluator: {timeout: 1}\n"},
    )

    assert evaluation.failure.kind is FailureKind.TIMEOUT


def test_what_was_printed_comes_with_a_failure_and_without_secrets(evaluate):
    evaluation = evaluate(
        IMPORTING + "def evaluate(path):\n    return {'a': program_of(path).f(0)}\n",
        "def f(x):\n    print('token=abcdef')\n    raise SystemExit\n",
    )

    assert evaluation.failure is not None
    assert "abcdef" not in repr(evaluation)


def test_data_files_are_read_relative_to_the_evaluator(sandbox, tmp_path):
    data = tmp_path / "elsewhere" / "numbers.txt"
    data.parent.mkdir()
    data.write_text("1 2 3 4")
    (tmp_path / "problem").mkdir()
    (tmp_path / "problem" / "initial_program.py").write_text("x = 1\n")
    (tmp_path / "problem" / "evaluator.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "def evaluate(path):\n"
        "    [name] = os.environ['EVOQ_PROBLEM_DATA'].split(os.pathsep)\n"
        "    numbers = (Path(__file__).parent / name).read_text().split()\n"
        "    return {'combined_score': len(numbers)}\n"
    )

    problem = load([tmp_path / "problem"], options={"problem.data": str(data)})

    assert score(trial(sandbox, problem, "evaluate")) == 4.0


PROBED = f"""{IMPORTING}
def evaluate(path):
    return {{"combined_score": 1.0}}

def probe_behaviour(path):
    f = program_of(path).f
    return {{"results": [f(x) for x in (0, 1, 7)], "name": f.__name__}}
"""


def test_a_probe_tells_programs_apart_by_what_they_do(sandbox: ProcessSandbox, tmp_path: Path):
    problem = written(tmp_path, PROBED, "def f(x):\n    return x + 1\n", {})

    def probe(source: str) -> Evaluation:
        program = Program(source)
        tried, programs = Trial(problem.probe, (program.id,)), {program.id: program}
        return problem.interpret(tried, programs, sandbox.run(problem.prepare(tried, programs)))

    one, other = probe("def f(x):\n    return x + 1\n"), probe("f = lambda x: x * 2\n")
    alike, crashing = (
        probe("def f(x):\n    return 1 + x\n"),
        probe("def f(x):\n    raise OSError\n"),
    )

    assert one.behaviour == alike.behaviour != other.behaviour
    assert (one.scores, one.metrics, one.failure) == ({}, {}, None)
    assert crashing.failure is not None
    assert crashing.behaviour == ""


def test_the_surroundings_name_the_interpreter_and_its_packages(
    sandbox: ProcessSandbox, tmp_path: Path
):
    problem = written(tmp_path, PROBED, "def f(x):\n    return x\n", {})

    named = sandbox.surroundings(problem.first_job().evaluator)

    assert named.startswith(f"process {sys.version.split()[0]}")
    assert named == sandbox.surroundings(problem.first_job().evaluator)
