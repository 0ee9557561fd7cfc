"""A seed is measured in both modes, and differences are described."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from app.client.measuring import comparable, compare_modes, measure
from app.domain.evaluation import Failure, FailureKind, Trial
from app.domain.problem import Folder, Job, Mode, Outcome
from app.ports.protocols import NEVER, Stop
from tests.engine.toy import ToySandbox, problem


class TwoFaced(ToySandbox):
    """Measures what it is given for each mode, and counts the trials of each."""

    def __init__(self, guarded: Any, compatible: Any) -> None:
        super().__init__()
        self.modes: list[Mode] = []
        self._results = {Mode.GUARDED: iter(guarded), Mode.COMPATIBLE: iter(compatible)}

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        self.modes.append(job.mode)
        result = next(self._results[job.mode])
        if isinstance(result, FailureKind):
            return Outcome(None, Failure(result, "it could not be imported"))
        return Outcome(json.dumps({"x": result}).encode(), None)


def difference(sandbox: TwoFaced) -> str:
    toy = problem()
    [seed] = toy.seeds
    [evaluation] = measure(toy, sandbox, seed).trials.values()
    trial = Trial("evaluate", (seed.id,))
    return compare_modes(sandbox, toy, trial, {seed.id: seed}, evaluation)


def test_a_seed_that_measures_alike_in_both_modes_costs_one_more_trial() -> None:
    sandbox = TwoFaced(itertools.repeat(1.0), itertools.repeat(1.0))
    assert difference(sandbox) == ""
    assert sandbox.modes == [Mode.GUARDED, Mode.COMPATIBLE]


def test_a_difference_is_described_with_seed_case_values_reasons_and_remedy() -> None:
    text = difference(TwoFaced(itertools.repeat(1.0), itertools.repeat(2.0)))
    for part in ("the seed", "x is 1 in guarded and 2 in compatible", "EVOQ_PROGRAM_SOURCE",
                 "stays in guarded mode", "sandbox.mode=compatible"):  # fmt: skip
        assert part.lower() in text.lower()


def test_what_compatible_mode_itself_measures_differently_twice_is_noise() -> None:
    assert difference(TwoFaced(itertools.repeat(1.0), itertools.count(2.0))) == ""


def test_two_failures_are_described_without_a_guess_at_the_reason() -> None:
    text = difference(
        TwoFaced(itertools.repeat(FailureKind.MEMORY), itertools.repeat(FailureKind.SYNTAX))
    )
    assert "failure is memory (it could not be imported) in guarded and syntax (" in text
    assert "Likely" not in text


def test_a_seed_that_fails_in_guarded_mode_alone_is_explained() -> None:
    sandbox = TwoFaced(itertools.repeat(FailureKind.INVALID_RESULT), itertools.repeat(2.0))
    text = difference(sandbox)
    assert (
        "failure is invalid_result (it could not be imported) in guarded and no failure in" in text
    )


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (None, True),
        (Folder(("main.py",), (8,), "main.py"), True),
        (Folder(("main.py",), (8,)), False),
        (Folder(("main.py",), (8,), "main.py", copied=True), False),
    ],
)
def test_only_programs_that_guarded_mode_can_measure_are_compared(
    folder: Folder | None, expected: bool
) -> None:
    toy = problem()
    several = replace(
        toy, prepare=lambda trial, programs: replace(toy.prepare(trial, programs), folder=folder)
    )
    assert comparable(several) is expected
