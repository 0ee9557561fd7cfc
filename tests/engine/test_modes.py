"""Seeds are measured in both modes, and a run says what differs."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.events import EventKind
from app.domain.problem import Job, Mode, Outcome
from app.domain.run import RunState
from app.engine.context import Context
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import ToySandbox, problem


class TwoFaced(ToySandbox):
    """Measures what it is told in each mode, and counts the trials of each."""

    def __init__(self, guarded: Any, compatible: Any) -> None:
        super().__init__()
        self.modes: list[Mode] = []
        self._says = {Mode.GUARDED: iter(guarded), Mode.COMPATIBLE: iter(compatible)}

    def run(self, job: Job) -> Outcome:
        if job.programs[0][1] != b"x = 0.0\n":
            return super().run(job)
        self.modes.append(job.mode)
        said = next(self._says[job.mode])
        if isinstance(said, FailureKind):
            return Outcome(None, Failure(said, "it could not be imported"))
        return Outcome(json.dumps({"x": said}).encode(), None)


def noticed(ctx: Context, sandbox: ToySandbox, **settings: Any) -> list[str]:
    new = new_run(problem(), budget=6)
    new = replace(new, settings={**new.settings, "sandbox": {"compare_modes": True, **settings}})
    run_id = run_to_the_end(replace(ctx, sandbox=sandbox), problem(), new)
    with ctx.store.begin() as tx:
        return [event.data["text"] for event in tx.events.read(run_id, kinds=[EventKind.NOTICED])]


def test_a_seed_that_measures_alike_in_both_modes_costs_one_more_trial(ctx: Context) -> None:
    sandbox = TwoFaced(itertools.repeat(1.0), itertools.repeat(1.0))
    assert noticed(ctx, sandbox) == []
    assert sandbox.modes == [Mode.GUARDED, Mode.COMPATIBLE]


def test_a_difference_is_told_with_seed_case_values_reasons_and_remedy(ctx: Context) -> None:
    [text] = noticed(ctx, TwoFaced(itertools.repeat(1.0), itertools.repeat(2.0)))
    for part in ("the seed", "x is 1 in guarded and 2 in compatible", "EVOQ_PROGRAM_SOURCE",
                 "stays in guarded mode", "sandbox.mode=compatible"):  # fmt: skip
        assert part.lower() in text.lower()


def test_what_compatible_mode_itself_measures_differently_twice_is_noise(ctx: Context) -> None:
    assert noticed(ctx, TwoFaced(itertools.repeat(1.0), itertools.count(2.0))) == []


def test_a_seed_that_fails_in_guarded_mode_alone_is_explained_where_the_run_ends(
    ctx: Context,
) -> None:
    sandbox = TwoFaced(itertools.repeat(FailureKind.INVALID_RESULT), itertools.repeat(2.0))
    new = new_run(problem(), budget=6)
    run_id = run_to_the_end(replace(ctx, sandbox=sandbox), problem(), new)
    with ctx.store.begin() as tx:
        run = tx.runs.get(run_id)
    assert run.state is RunState.FAILED
    assert "failure is invalid_result in guarded and no failure in compatible" in run.reason


def test_modes_are_not_compared_where_that_is_not_asked(ctx: Context) -> None:
    sandbox = TwoFaced(itertools.repeat(1.0), itertools.repeat(2.0))
    assert noticed(ctx, sandbox, compare_modes=False) == []
    assert sandbox.modes == [Mode.GUARDED]


@pytest.mark.parametrize("budget", [5, 30])
def test_only_seeds_are_measured_twice(ctx: Context, budget: int) -> None:
    sandbox = ToySandbox()
    new = new_run(problem(), budget=budget)
    run_id = run_to_the_end(replace(ctx, sandbox=sandbox), problem(), new)
    with ctx.store.begin() as tx:
        tested = {
            one.program for one in tx.history.settled(run_id, limit=100) if one.program is not None
        }
    assert sandbox.runs <= len(tested) + 1
