"""Formats of problems are found by what they recognise, and by the name that the ledger keeps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.adapters.problems import configures_problem, load, openevolve, reload
from app.adapters.problems.files import Source
from app.adapters.problems.options import Options
from app.domain.problem import Problem, ProblemError


class OneFile:
    """A format of which each problem is one file."""

    NAME = "one-file"
    OPTIONS: frozenset[str] = frozenset()

    def recognises(self, paths: Sequence[Path]) -> bool:
        return [path.suffix for path in paths] == [".spec"]

    def read(
        self, paths: Sequence[Path], config: Path | None = None, *, strict: bool = False
    ) -> Source:
        return Source(paths[0].stem, {"spec": paths[0].read_bytes()}, {"problem.initial": "spec"})

    def build(self, name: str, files: Mapping[str, bytes], options: Options) -> Problem:
        nothing: Any = None
        return Problem(name, "0", self.NAME, files, options.values, "", (), nothing, nothing)


FORMATS = (OneFile(), openevolve)


def test_the_format_that_recognises_the_paths_reads_them(tmp_path):
    file = tmp_path / "caps.spec"
    file.write_text("f\n")

    problem = load([file], formats=FORMATS, options={"sandbox.memory_mib": 64})

    assert (problem.format, problem.name, problem.files) == ("one-file", "caps", {"spec": b"f\n"})
    assert problem.options == {"problem.initial": "spec", "sandbox.memory_mib": 64}


def test_what_the_ledger_keeps_is_read_by_the_format_of_its_name(tmp_path):
    problem = reload("one-file", "caps", {"spec": b"f\n"}, {}, formats=FORMATS)

    assert problem.format == "one-file"


def test_a_format_of_another_version_is_refused_by_its_name():
    with pytest.raises(ProblemError, match=r"unknown format .*\(one-file\).* reads .*openevolve"):
        reload("one-file", "caps", {}, {})


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("max_iterations: 5\nllm: {primary_model: x}\n", True),
        ("llm: {primary_model: x, api_base: y}\n", True),
        ("evaluator: {timeout: 5}\n", True),
        ("max_iterations: 5\nmax_iteration: 5\n", True),
        ("llm: {model: x}\n", False),
        ("[]\n", False),
        ("{}\n", False),
        ("max_iteration: 5\n", False),
        (
            "run_id: demo\nseed: 42\nmax_generations: 20\npopulation_size: 50\n"
            "task_name: bin_packing\nevaluator: {capacity: 100, seed: 42}\n"
            "llm_providers: [{provider_id: fake}]\nartifact_dir: artifacts\n",
            False,
        ),
    ],
)
def test_a_configuration_of_a_problem_is_recognised_by_its_keys(text, is_one):
    assert configures_problem(yaml.safe_load(text)) is is_one
