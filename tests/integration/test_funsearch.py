"""Specification files through the real sandbox, as people have written them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.adapters.problems import load
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.adapters.tuning.cma import ask as cma
from app.client.measuring import Measurement, count_calls, measure
from app.domain.evaluation import FailureKind
from app.domain.operators import operators
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.run import RunState
from app.domain.search.cohort import State
from tests.engine.conftest import ctx, new_run, run_to_the_end

__all__ = ["ctx"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "funsearch"
SPECIFICATIONS = {
    "cap_set": ([3, 4], 16.0),
    "admissible_set": ("(4, 2), (5, 3)", 20.0),
    "salem_spencer": ([9, 14, 20], 8.0),
    "bin_packing": (list(range(9)), -51.0),
}
"""Inputs, and the score of the specification itself on the last of them."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))
    yield sandbox
    sandbox.close()


def example(name: str) -> Problem:
    return load([EXAMPLES / f"{name}.py"], options={"problem.inputs": SPECIFICATIONS[name][0]})


def text(returns: str, *, parameters: str = "n", body: str = "return n") -> str:
    return (
        f"@funsearch.run\ndef evaluate({parameters}):\n  return {returns}\n\n"
        f"@funsearch.evolve\ndef priority(n):\n  {body}\n"
    )


@pytest.fixture
def measured(sandbox: ProcessSandbox, tmp_path: Path) -> Any:
    def measurement(specification: str, program: str = "", **options: Any) -> Measurement:
        path = tmp_path / "specification.py"
        path.write_text(specification)
        given = {f"problem.{name}": value for name, value in options.items()}
        problem = load([path], options=given)
        seed = problem.seeds[0].source
        child = (
            Program(seed.replace("return n\n# EVOLVE", f"{program}\n# EVOLVE")) if program else None
        )
        return measure(problem, sandbox, child or problem.seeds[0])

    return measurement


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_an_example_is_scored_on_each_input(sandbox, name):
    problem = example(name)

    found = measure(problem, sandbox, problem.seeds[0])

    assert found.failure is None, found.failure
    assert found.fitness == SPECIFICATIONS[name][1]
    assert found.verified
    assert set(found.metrics) == {
        *(case for trial in found.trials for case in trial.cases),
        "combined_score",
    }


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_a_run_of_an_example_comes_to_its_end(ctx, sandbox, name):
    problem = example(name)
    new = replace(
        new_run(problem, budget=4), strategy="funsearch", operators={"mutate": 1.0}, axes=()
    )
    ctx = replace(
        ctx,
        problem=lambda digest: problem,
        sandbox=sandbox,
        operators=operators(cma),
    )

    run = run_to_the_end(ctx, problem, new)

    with ctx.store.begin() as tx:
        assert tx.runs.get(run).state is RunState.FINISHED
        assert tx.history.states(run)[State.ADMITTED] > 0
        best = tx.history.best(run)
    assert best is not None
    assert best.fitness is not None
    assert best.fitness >= SPECIFICATIONS[name][1]


@pytest.mark.parametrize(
    ("specification", "options", "fitness"),
    [
        (text("priority(n)"), {"inputs": [3, 5]}, 5.0),
        (text("priority(n)"), {"inputs": [3, 5], "scoring": "mean"}, 4.0),
        (text("priority(n), 'hash'"), {"inputs": 3}, 3.0),
        (text("{'score': priority(n), 'bins': 9}"), {"inputs": 3}, 3.0),
        (text("{'small': priority(n), 'large': 9}"), {"inputs": 3}, 6.0),
        (text("{'one': 1.6e308 + priority(n), 'other': 1.6e308}"), {"inputs": 3}, 1.6e308),
        (text("__import__('numpy').int64(priority(n))"), {"inputs": 3}, 3.0),
        (text("priority(n) + w", parameters="n, w"), {"inputs": "(3, 4)"}, 7.0),
        (text("priority(n)[1]"), {"inputs": [[3, 4]]}, 4.0),
        (text("priority(n)", parameters="n=7"), {}, 7.0),
        (text("priority(8)", parameters=""), {}, 8.0),
        (text("priority(9)", parameters="_"), {}, 9.0),
    ],
    ids=[
        *("last", "mean", "pair", "dict with score", "dict", "dict of large numbers", "numpy"),
        *("two arguments", "a list"),
        *("default", "no argument", "ignored argument"),
    ],
)
def test_what_a_specification_takes_and_returns_is_understood(
    measured, specification, options, fitness
):
    found = measured(specification, **options)

    assert found.failure is None, found.failure
    assert found.fitness == fitness


@pytest.mark.parametrize(
    ("returned", "fitness"),
    [
        ("__import__('decimal').Decimal('0.5')", 0.5),
        ("__import__('fractions').Fraction(1, 4)", 0.25),
        ("__import__('numpy').array([[2.5]])", 2.5),
        ("{'a': __import__('decimal').Decimal(1), 'b': True, 'note': 'x'}", 1.0),
    ],
)
def test_whatever_float_takes_is_a_score_of_a_specification(measured, returned, fitness):
    assert measured(text(returned), inputs=3).fitness == fitness


@pytest.mark.parametrize(
    "returned", ["None", "float('nan')", "'12'", "[1, 2]", "1j", "{'a': None, 'seconds': 0.5}"]
)
def test_what_is_no_number_is_a_failure(measured, returned):
    found = measured(text(returned), inputs=3)

    assert found.failure.kind is FailureKind.RUNTIME
    assert "not an int/float score" in found.failure.detail


@pytest.mark.parametrize("count", [3, 9])
def test_an_input_that_fails_is_missing_and_the_last_that_scored_counts(measured, count):
    found = measured(
        text("priority(n)"), f"return n if n < {count - 1} else 1 / 0", inputs=list(range(count))
    )

    assert found.failure is None
    assert found.fitness == count - 2
    assert str(count - 1) not in found.metrics


@pytest.mark.parametrize("count", [3, 9])
def test_a_mean_is_over_all_inputs_or_there_is_none(measured, count):
    inputs = list(range(count))
    found = measured(text("priority(n)"), "return 1 / n", inputs=inputs, scoring="mean")

    assert found.fitness is None
    assert "ZeroDivisionError" in found.failure.detail


def test_a_program_without_the_function_fails(sandbox, tmp_path):
    (tmp_path / "one.py").write_text(text("priority(n)"))
    problem = load([tmp_path / "one.py"], options={"problem.inputs": 3})

    found = measure(problem, sandbox, Program("def other(n):\n  return n\n"))

    assert found.failure is not None
    assert found.failure.kind is FailureKind.INVALID_SIGNATURE


def test_a_program_cannot_change_how_it_is_scored(measured):
    forged = "globals().update(evaluate=lambda n: 1e9)\n  return n"

    assert measured(text("priority(n)"), forged, inputs=3).fitness == 3.0


def test_the_calls_of_an_evaluation_are_counted_over_all_inputs(sandbox, tmp_path):
    (tmp_path / "one.py").write_text(text("sum(priority(i) for i in range(n))"))
    problem = load([tmp_path / "one.py"], options={"problem.inputs": [10, 32]})

    counted = count_calls(problem, sandbox)

    assert counted is not None
    assert counted.calls == 42
