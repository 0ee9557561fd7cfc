"""The examples as they are: they load without a remark, their seeds score, cheating is refused."""

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app.adapters.problems import load
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.client.measuring import measure, validating
from app.domain.evaluation import Evaluation, Trial, fitness
from app.domain.problem import Problem
from app.domain.program import Program

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SHARED = Path(os.environ.get("EVOQ_SHARED", ROOT.parent / "shared")) / "data"
PACKING = ["online_bin_packing", "online_bin_packing_weibull"]
NAMES = ["circle_packing", "function_minimization", *PACKING]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))
    yield sandbox
    sandbox.close()


def evaluated(sandbox: ProcessSandbox, problem: Problem, program: Program) -> Evaluation:
    trial, programs = Trial(problem.final_stage, (program.id,)), {program.id: program}
    return problem.interpret(trial, programs, sandbox.run(problem.prepare(trial, programs)))


@pytest.fixture(scope="module")
def first(sandbox: ProcessSandbox) -> Callable[[Problem, str], Evaluation]:
    """Returns the first evaluation of a seed of a problem: packing takes a second."""
    known: dict[tuple[str, str], Evaluation] = {}

    def evaluation(problem: Problem, seed: str) -> Evaluation:
        key = problem.digest, seed
        if key not in known:
            [program] = [one for one in problem.seeds if one.id == seed]
            known[key] = evaluated(sandbox, problem, program)
        return known[key]

    return evaluation


def score(sandbox: ProcessSandbox, problem: Problem, program: Program) -> float:
    return scored(evaluated(sandbox, problem, program), program)


def scored(evaluation: Evaluation, program: Program) -> float:
    assert evaluation.failure is None, evaluation.failure
    reached = fitness(program.id, [evaluation])
    assert reached is not None
    return reached


@pytest.mark.parametrize("name", NAMES)
def test_an_example_loads_strictly_and_without_a_remark(name):
    problem = load([EXAMPLES / name], strict=True)

    assert problem.notices == ()
    assert problem.instructions
    assert "README.md" in problem.files


@pytest.mark.parametrize("name", NAMES[:-1])  # the two of packing share their evaluator
def test_the_seeds_of_an_example_score_the_same_twice(sandbox, first, name):
    problem = load([EXAMPLES / name])

    for seed in problem.seeds[:1] if name in PACKING else problem.seeds:  # packing takes a second
        assert score(sandbox, problem, seed) == scored(first(problem, seed.id), seed)


COMPATIBLE = {"sandbox.mode": "compatible"}
"""Takes half of the time of guarded mode, where `test_bin_packing_table` counts the same bins."""


@pytest.mark.parametrize("name", PACKING)
def test_the_initial_program_of_bin_packing_is_best_fit_which_beats_first_fit(first, name):
    problem = load([EXAMPLES / name], options=COMPATIBLE)

    reached = {name: first(problem, baseline) for name, baseline in problem.baselines.items()}
    excess = {name: next(iter(one.metrics.values())) for name, one in reached.items()}

    assert excess["initial program"] == excess["best fit"]
    assert excess["best fit"]["excess"] < excess["first fit"]["excess"]


@pytest.mark.parametrize("name", PACKING)
def test_the_published_heuristic_beats_best_fit_on_validation_data(sandbox, first, name):
    problem = load([EXAMPLES / name], options=COMPATIBLE)
    validation = validating(problem)
    best_fit = next(seed for seed in problem.seeds if seed.id == problem.baselines["best fit"])

    measured = measure(validation, sandbox, best_fit)
    published = measure(validation, sandbox, problem.references["funsearch"])

    assert measured.failure is None
    assert measured.fitness is not None
    assert published.fitness is not None
    assert published.fitness > measured.fitness
    assert published.metrics["lower_bound"] == measured.metrics["lower_bound"]
    [seen] = first(problem, best_fit.id).metrics.values()
    assert seen["lower_bound"] != measured.metrics["lower_bound"], "other instances"


def test_the_two_folders_of_bin_packing_share_their_evaluator():
    one, other = (load([EXAMPLES / name]) for name in PACKING)

    shared = {name for name in one.files if one.files[name] == other.files.get(name)}
    assert {"evaluator.py", "instances.py", "initial_program.py"} <= shared
    assert not {"sets.py", "config.yaml", "references/funsearch.py"} & shared


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("return np.zeros(len(bins) + 1)", "shape"),
        ("return 1.0", "shape"),
        ("return bins * np.nan", "not finite"),
        ("return np.full(len(bins), -np.inf)", "not finite"),
        ("return bins.astype(str)", "one number a bin"),
    ],
)
def test_priorities_that_cannot_be_compared_are_refused(sandbox, body, word):
    problem = load([EXAMPLES / "online_bin_packing"])
    program = Program(f"import numpy as np\ndef priority(item, bins):\n    {body}\n")

    failure = evaluated(sandbox, problem, program).failure

    assert failure is not None
    assert word in failure.detail


def test_a_priority_function_cannot_change_the_rooms_of_the_bins(sandbox, first):
    problem = load([EXAMPLES / "online_bin_packing"], options=COMPATIBLE)  # in one process with it
    honest = next(seed for seed in problem.seeds if seed.id == problem.baselines["best fit"])
    greedy = Program(
        "def priority(item, bins):\n    worth = item - bins\n    bins[:] = 1e9\n    return worth\n"
    )

    assert score(sandbox, problem, greedy) == scored(first(problem, honest.id), honest)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("return (-1.704, 0.678, -9.0)", "not -9.0"),
        ("return (50.0, 50.0, 0.0)", "outside"),
        ("return (float('nan'), 0.0, 0.0)", "not finite"),
    ],
)
def test_a_search_is_not_believed_what_it_says_it_found(sandbox, body, word):
    problem = load([EXAMPLES / "function_minimization"])

    failure = evaluated(sandbox, problem, Program(f"def run_search():\n    {body}\n")).failure

    assert failure is not None
    assert word in failure.detail


def test_the_known_minimum_scores_best(sandbox):
    problem = load([EXAMPLES / "function_minimization"])
    known = Program(
        "from math import sin, cos\n"
        "def run_search():\n"
        "    x, y = -1.704, 0.678\n"
        "    return x, y, sin(x) * cos(y) + sin(x * y) + (x * x + y * y) / 20\n"
    )

    assert score(sandbox, problem, known) == pytest.approx(1.5187, abs=1e-4)


@contextmanager
def own_module(example: str, name: str) -> Iterator[ModuleType]:
    """Imports a file of an example, which is this repository's own code and imports no program."""
    path = EXAMPLES / example / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{example}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def circles() -> Iterator[ModuleType]:
    with own_module("circle_packing", "evaluator") as module:
        yield module


def grid(radius: float) -> list[list[float]]:
    """Twenty-five circles in a square grid whose neighbours are 0.2 apart, and one of radius 0."""
    rows = [[0.2 * x + 0.1, 0.2 * y + 0.1, radius] for x in range(5) for y in range(5)]
    return [*rows, [0.5, 0.5 + 0.1, 0.0]]


def test_a_packing_is_checked_without_any_tolerance(circles):
    circles.verify(circles.exact(grid(0.09999999999999998)))

    with pytest.raises(circles.InvalidPacking):
        circles.verify(circles.exact(grid(0.1 + 1e-16)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({0: [0.05, 0.1, 0.06]}, "leaves the square"),
        ({0: [0.1, 0.1, -0.01]}, "has the radius"),
        ({1: [0.1, 0.1, 0.05]}, "overlap"),
        ({0: [float("nan"), 0.1, 0.01]}, "not finite"),
    ],
)
def test_what_is_wrong_with_a_packing_is_said(circles, change, word):
    rows = [change.get(n, row) for n, row in enumerate(grid(0.09))]

    with pytest.raises(circles.InvalidPacking, match=word):
        circles.verify(circles.exact(rows))


@pytest.mark.parametrize("packing", [[[0.5, 0.5, 0.5]], None, "circles", [["a", "b", "c"]] * 26])
def test_what_is_no_array_of_26_circles_is_refused(circles, packing):
    with pytest.raises(circles.InvalidPacking):
        circles.exact(packing)


def published() -> list[dict[str, Any]]:
    path = SHARED / "circle_packing_n26_constructions.json"
    return json.loads(path.read_text()) if path.is_file() else []


@pytest.mark.skipif(not published(), reason="no published packings: set EVOQ_SHARED")
@pytest.mark.parametrize(
    ("name", "total"),
    [("AlphaEvolve", 2.63586), ("8B-w_RL@65-Formal", 2.63598), ("ShinkaEvolve", 2.63598)],
)
def test_published_packings_that_are_valid_are_accepted(circles, name, total):
    [packing] = [one["circles"] for one in published() if one["name"] == name]

    circles.verify(circles.exact(packing))

    assert sum(row[2] for row in packing) == pytest.approx(total, abs=1e-5)


@pytest.mark.skipif(not published(), reason="no published packings: set EVOQ_SHARED")
@pytest.mark.parametrize(
    ("name", "slack"),
    [("8B-w_RL@65", 1e-6), ("Init", 1e-16)],  # the second touches, and rounds to an overlap
)
def test_published_packings_that_need_slack_are_refused(circles, name, slack):
    [packing] = [one["circles"] for one in published() if one["name"] == name]
    shrunk = [[x, y, max(radius - slack, 0.0)] for x, y, radius in packing]

    circles.verify(circles.exact(shrunk))
    with pytest.raises(circles.InvalidPacking, match="overlap"):
        circles.verify(circles.exact(packing))


@pytest.fixture
def instances() -> Iterator[ModuleType]:
    with own_module("online_bin_packing", "instances") as module:
        yield module


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.txt", "hello"), ("a.txt", "2\nx 150 3 1\n20 30 40"), ("a.json", "[]"), ("a.json", "{")],
)
def test_a_file_of_another_kind_is_named(instances, name, text, tmp_path):
    (tmp_path / name).write_text(text)

    with pytest.raises(ValueError, match=rf"{name}: neither an OR-Library"):
        instances.read(tmp_path / name)
