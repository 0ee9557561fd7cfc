"""Task folders of ShinkaEvolve: recognised, measured in the real sandbox, and run to their end."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.problems import load
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.adapters.tuning.cma import ask as cma
from app.cli.application import status_of
from app.client.measuring import Measurement, measure
from app.domain.evaluation import FailureKind
from app.domain.operators import operators
from app.domain.problem import Problem, ProblemError
from app.domain.program import Program
from app.domain.run import RunState
from app.engine.context import Context
from tests.engine.conftest import ctx, new_run, run_to_the_end

__all__ = ["ctx"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "shinka_points"
PRIVATE = "4321.5"
"""A private metric; the task computes it, so that its text is in no file."""

INITIAL = """\
# EVOLVE-BLOCK-START
def value(seed):
    return 2.0 * seed
# EVOLVE-BLOCK-END


def run_experiment(seed):
    return value(seed)
"""
TASK = """\
from shinka.core.wrap_eval import run_shinka_eval


def aggregate(results):
    hidden = 4321 + 0.5
    print(hidden)
    return {
        "combined_score": sum(results),
        "public": {"first": results[0], "form": "plain"},
        "private": {"hidden": hidden},
        "text_feedback": f"the last is {results[-1]}",
    }


def main(program_path, results_dir):
    run_shinka_eval(
        program_path=program_path,
        results_dir=results_dir,
        experiment_fn_name="run_experiment",
        num_runs=3,
        validate_fn=lambda result: (result < 100, "too large"),
        aggregate_metrics_fn=aggregate,
        run_workers=4,
    )
"""
PLAIN = """\
import json
import os


def main(program_path, results_dir):
    documents = {"metrics.json": METRICS, "correct.json": {"correct": True}}
    for name, document in documents.items():
        with open(os.path.join(results_dir, name), "w") as file:
            json.dump(document, file)
"""


SCRIPT = """\
import argparse
import json
from pathlib import Path

ASKED = argparse.ArgumentParser()
ASKED.add_argument("--program_path", default="initial.py")
ASKED.add_argument("--results_dir", default="results")
ASKED.add_argument("--data", default="train")


def measure(path, results, data):
    names = {}
    exec(Path(path).read_text(), names)
    score = names["run_experiment"](3)
    for name, document in (
        ("metrics.json", {"combined_score": score, "public": {"data": data}}),
        ("correct.json", {"correct": score < 100}),
    ):
        (Path(results) / name).write_text(json.dumps(document))


if __name__ == "__main__":
    asked = ASKED.parse_args()
    measure(asked.program_path, asked.results_dir, asked.data)
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))
    yield sandbox
    sandbox.close()


def task(folder: Path, evaluate: str = TASK, **files: str) -> Problem:
    (folder / "initial.py").write_text(INITIAL)
    (folder / "evaluate.py").write_text(evaluate)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return load([folder])


def measured(problem: Problem, sandbox: ProcessSandbox, source: str = INITIAL) -> Measurement:
    return measure(problem, sandbox, Program(source))


def test_a_task_is_known_by_its_two_files(tmp_path: Path):
    assert task(tmp_path).format == "shinka"
    for path in (tmp_path / "initial.py", tmp_path / "evaluate.py"):
        assert load([path]).format == "shinka"
    assert load([EXAMPLE]).notices == ()

    (tmp_path / "initial.txt").write_text("which of the two?")
    with pytest.raises(ProblemError):
        load([tmp_path])
    (tmp_path / "initial.txt").unlink()
    (tmp_path / "evaluator.py").write_text(
        "def evaluate(path):\n    return {'combined_score': 1}\n"
    )
    assert load([tmp_path / "evaluator.py"]).format == "openevolve"


def test_a_configuration_is_refused(tmp_path: Path):
    task(tmp_path)
    with pytest.raises(ProblemError, match="no configuration that Evoqueue reads"):
        load([tmp_path], config=tmp_path / "shinka.yaml")


@pytest.mark.parametrize(
    "launcher",
    [
        'search_task_sys_msg = """Be large."""\n',
        'run(EvolutionConfig(num_generations=3, task_sys_msg="Be large."))\n',
    ],
)
def test_the_system_message_of_the_launcher_is_the_instructions(tmp_path: Path, launcher: str):
    assert task(tmp_path, run_evo=launcher).instructions == "Be large."
    assert task(tmp_path, run_evo="task_sys_msg = read()\n").instructions == ""


def test_public_metrics_and_the_feedback_are_kept_and_private_ones_are_not(
    sandbox: ProcessSandbox, tmp_path: Path
):
    found = measured(task(tmp_path), sandbox)

    assert found.failure is None, found.failure
    assert found.verified
    assert found.fitness == 12.0
    assert found.metrics == {"combined_score": 12.0, "first": 2.0}
    assert found.artifacts == {"text_feedback": "the last is 6.0", "form": "plain"}


@pytest.mark.parametrize(
    "evaluate",
    [
        SCRIPT,
        SCRIPT.replace("measure(", "main("),
        f"{SCRIPT}    raise SystemExit(0)\n",
    ],
    ids=["no_main", "main_with_three", "exit_0"],
)
def test_a_task_that_is_a_script_gets_its_options(
    sandbox: ProcessSandbox, tmp_path: Path, evaluate: str
):
    found = measured(task(tmp_path, evaluate), sandbox)

    assert found.failure is None
    assert found.metrics == {"combined_score": 6.0}
    assert found.artifacts == {"data": "train"}


@pytest.mark.parametrize("ending", ["raise RuntimeError('not good')", "raise SystemExit(1)"])
def test_what_a_task_raises_counts_only_before_its_results(
    sandbox: ProcessSandbox, tmp_path: Path, ending: str
):
    late = measured(task(tmp_path, f"{TASK}    {ending}\n"), sandbox)
    early = measured(task(tmp_path, f"def main(path, results):\n    {ending}\n"), sandbox)

    assert late.metrics == {"combined_score": 12.0, "first": 2.0}
    assert early.failure is not None
    assert "not good" in early.failure.detail or "exited with 1" in early.failure.detail


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ("100.0 * seed", "too large"),
        ("1 / 0", "division by zero"),
        ("'a'", "not supported between"),
    ],
)
def test_a_program_that_is_not_correct_fails_with_the_reason(
    sandbox: ProcessSandbox, tmp_path: Path, change: str, detail: str
):
    found = measured(task(tmp_path), sandbox, INITIAL.replace("2.0 * seed", change))

    assert found.failure is not None
    assert found.failure.kind is FailureKind.RUNTIME
    assert detail in found.failure.detail
    assert PRIVATE not in json.dumps(dict(found.artifacts))


@pytest.mark.parametrize(
    ("metrics", "detail"),
    [
        ('{"public": {"combined_score": 3.0}}', "has no `combined_score`"),
        ('{"combined_score": float("nan")}', "not a finite number"),
        ('{"combined_score": "high"}', "not a number"),
        ("[1.0]", "not a JSON object"),
    ],
)
def test_results_that_are_no_score_are_a_failure(
    sandbox: ProcessSandbox, tmp_path: Path, metrics: str, detail: str
):
    found = measured(task(tmp_path, PLAIN.replace("METRICS", metrics)), sandbox)

    assert found.failure is not None
    assert detail in found.failure.detail


def test_a_run_without_a_model_ends_and_keeps_nothing_private(
    ctx: Context, sandbox: ProcessSandbox, tmp_path: Path
):
    problem = task(tmp_path)
    ctx = replace(ctx, sandbox=sandbox, operators=operators(cma))
    new = replace(new_run(problem, budget=6), operators={"mutate": 1.0}, axes=problem.axes)

    run = run_to_the_end(ctx, problem, new)

    with ctx.store.begin() as tx:
        assert tx.runs.get(run).state is RunState.FINISHED
        best = tx.history.best(run)
        ledger = json.dumps([dict(row.values) for row in tx.copies.rows(run)])
    assert best is not None
    assert best.fitness is not None
    assert best.fitness >= 12.0
    assert "the last is" in ledger
    assert PRIVATE not in ledger


def test_the_example_is_checked_by_the_command(capsys: pytest.CaptureFixture[str]):
    named = [str(EXAMPLE), str(EXAMPLE / "initial.py")]
    assert status_of(["evaluate", *named, "--sandbox", "process", "--json"]) == 0

    [result] = json.loads(capsys.readouterr().out)
    assert result["fitness"] == pytest.approx(0.2666667, abs=1e-6)
    assert "worst_size" not in json.dumps(result)
