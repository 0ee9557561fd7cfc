"""The Python interface, by the example of its documentation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.config.layers import UsageError
from app.domain.problem import ProblemError
from evoqueue import evolve
from tests.integration.cli import problem_folder

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_of_the_documentation_finds_a_better_function(
    kept_servers: Path, tmp_path: Path
):
    text = (ROOT / "docs/python.md").read_text()
    [example] = [part for part in text.split("```") if part.startswith("python\n")]
    script = example.removeprefix("python\n")
    assert ", reproducible=True)" in script
    (tmp_path / "example.py").write_text(script)

    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**os.environ, "EVOQ_HOME": str(kept_servers)},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    assert "20 proposals, best" in done.stdout
    [end] = [line for line in done.stdout.splitlines() if line.startswith("finished")]
    fitness, baseline = (float(end.split()[place]) for place in (1, -1))
    assert fitness > baseline
    assert "def curve(x):" in done.stdout


@pytest.mark.usefixtures("servers")
def test_a_run_whose_caller_leaves_the_loop_is_paused(tmp_path: Path):
    folder = problem_folder(tmp_path / "problem")
    search = evolve(folder, iterations=500, reproducible=True, name="left")

    for progress in search:
        if progress.done:
            break

    result = search.result()
    assert (result.run, result.state) == ("left", "paused")
    assert 0 < result.proposals < 500
    assert result.fitness is not None
    assert result.baselines == {"initial program": -6.5}


def test_what_cannot_be_used_is_refused_before_anything_starts(tmp_path: Path):
    with pytest.raises(UsageError, match=r"search\.island"):
        evolve(problem_folder(tmp_path / "problem"), settings={"search.island": 3})
    with pytest.raises(ProblemError, match="evaluator is missing"):
        evolve(tmp_path)
