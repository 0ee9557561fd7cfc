"""The published table of online bin packing, through the real sandbox, to the digit.

Source: Romera-Paredes et al., Nature 625 (2024), Table 1, columns OR1 to OR4 and Weibull 5k.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.problems import load
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.evaluation import Evaluation, Trial
from app.domain.program import Program

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = ROOT / "examples" / "online_bin_packing"
SHARED = Path(os.environ.get("EVOQ_SHARED", ROOT.parent / "shared")) / "data"

pytestmark = pytest.mark.skipif(
    not (SHARED / "orlib").is_dir(),
    reason="the published instances are not there: set EVOQ_SHARED to the folder that has data/",
)

FIRST_FIT = (PROBLEM / "seeds" / "first_fit.py").read_text()
BEST_FIT = (PROBLEM / "seeds" / "best_fit.py").read_text()

WEIBULL = PROBLEM.with_name("online_bin_packing_weibull")
FUNSEARCH_OR = (PROBLEM / "references" / "funsearch.py").read_text()
FUNSEARCH_WEIBULL = (WEIBULL / "references" / "funsearch.py").read_text()

FILES = {
    "OR1": "orlib/binpack1.txt",
    "OR2": "orlib/binpack2.txt",
    "OR3": "orlib/binpack3.txt",
    "OR4": "orlib/binpack4.txt",
    "Weibull 5k": "funsearch_weibull_5k.json",
}

TABLE = {
    "First Fit": (6.42, 6.45, 5.74, 5.23, 4.23),
    "Best Fit": (5.81, 6.06, 5.37, 4.94, 3.98),
    "FunSearch": (5.30, 4.19, 3.11, 2.47, 0.68),
}

CELLS = [
    (heuristic, column, published)
    for heuristic, row in TABLE.items()
    for column, published in zip(FILES, row, strict=True)
]


def source_of(heuristic: str, column: str) -> str:
    if heuristic == "FunSearch":
        return FUNSEARCH_WEIBULL if column == "Weibull 5k" else FUNSEARCH_OR
    return FIRST_FIT if heuristic == "First Fit" else BEST_FIT


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))
    yield sandbox
    sandbox.close()


def evaluated(sandbox: ProcessSandbox, column: str, source: str, mode: str) -> Evaluation:
    options = {
        "problem.data": str(SHARED / FILES[column]),
        "sandbox.mode": mode,
        "sandbox.wall_seconds": 120,
    }
    problem = load([PROBLEM], options=options)
    program = Program(source)
    trial, programs = Trial(problem.validation, (program.id,)), {program.id: program}
    outcome = sandbox.run(problem.prepare(trial, programs))
    evaluation = problem.interpret(trial, programs, outcome)
    assert evaluation.failure is None, evaluation.failure
    return evaluation


@pytest.mark.slow
@pytest.mark.parametrize(("heuristic", "column", "published"), CELLS)
def test_a_cell_of_the_published_table_is_reproduced(sandbox, heuristic, column, published):
    source = source_of(heuristic, column)

    evaluation = evaluated(sandbox, column, source, "compatible")

    [metrics] = evaluation.metrics.values()
    assert f"{metrics['excess']:.2f}" == f"{published:.2f}"
    assert not evaluation.verified


@pytest.mark.slow
def test_guarded_mode_counts_the_same_bins(sandbox):
    evaluation = evaluated(sandbox, "OR2", FUNSEARCH_OR, "guarded")

    [metrics] = evaluation.metrics.values()
    assert (metrics["bins"], metrics["lower_bound"]) == (2116, 2031)
    assert metrics["binpack2 bins (at least 2031)"] == 2116
    assert evaluation.verified


def test_funsearchs_own_file_of_or3_is_binpack3(sandbox):
    from_json = load([PROBLEM], options={"problem.data": str(SHARED / "funsearch_or3.json")})
    program = Program(BEST_FIT)
    trial, programs = Trial("evaluate_validation", (program.id,)), {program.id: program}

    outcome = sandbox.run(from_json.prepare(trial, programs))
    [metrics] = from_json.interpret(trial, programs, outcome).metrics.values()

    assert (metrics["bins"], metrics["lower_bound"]) == (4240, 4024)


def test_triplets_are_scaled_to_whole_numbers_and_shuffled(sandbox):
    triplets = load([PROBLEM], options={"problem.data": str(SHARED / "orlib" / "binpack5.txt")})
    program = Program(BEST_FIT)
    trial, programs = Trial("evaluate_validation", (program.id,)), {program.id: program}

    outcome = sandbox.run(triplets.prepare(trial, programs))
    [metrics] = triplets.interpret(trial, programs, outcome).metrics.values()

    assert metrics["lower_bound"] == 20 * 20  # three items a bin, sixty items
    assert metrics["bins"] > metrics["lower_bound"]
