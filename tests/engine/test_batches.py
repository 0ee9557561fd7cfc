"""Steps with several subjects: the leases of failed ones are released, results are kept."""

from dataclasses import replace

import pytest

from app.domain.problem import EvaluatorBroken, Job, Outcome
from app.domain.run import RunState
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Stop, Unavailable
from app.reports.summary import run_load
from tests.engine.conftest import new_run, table
from tests.engine.executors import Numbers, RecordedMessages, planned, settled
from tests.engine.toy import ToySandbox, problem

PACE = Pace(retry_seconds=0.0)


class Wavering(ToySandbox):
    """Fails once, with `error`, at the trial whose number is `fails`."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.fails = -1
        self.error = error

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if self.runs == self.fails:
            self.runs += 1
            raise self.error
        return super().run(job)


@pytest.fixture
def ctx(ctx: Context) -> Context:
    return replace(ctx, executor=RecordedMessages(), pace=PACE)


def test_cohorts_generated_together_enqueue_their_trials_in_one_message(ctx: Context) -> None:
    run, cohorts = planned(ctx, 8)
    steps.generate(ctx, *cohorts)
    step, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
    assert step == "evaluate"
    assert 1 <= len(trials) <= 8
    steps.evaluate(ctx, *trials)
    assert settled(ctx, run) == list(range(8))


def test_a_batch_run_twice_is_run_once(ctx: Context) -> None:
    run, cohorts = planned(ctx, 6)
    steps.generate(ctx, *cohorts)
    steps.generate(ctx, *reversed(cohorts))
    _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
    steps.evaluate(ctx, *trials)
    steps.evaluate(ctx, *reversed(trials))
    assert settled(ctx, run) == list(range(6))


def test_subjects_leased_elsewhere_are_left_out_of_a_batch(ctx: Context) -> None:
    run, cohorts = planned(ctx, 4)
    with ctx.store.begin() as tx:
        assert tx.proposals.claim(cohorts[1:2], 30, attempts=5)
    steps.generate(ctx, *cohorts)
    _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        held = tx.trials.claim(trials[:1], 30, attempts=5)
        backlog = tx.proposals.backlog(run.id)
    assert held
    assert backlog.generating == 1
    steps.evaluate(ctx, *trials)
    assert len(settled(ctx, run)) == 4 - 2


def test_equal_children_of_a_batch_are_tested_once(ctx: Context) -> None:
    model = Numbers(text="x = 3.0\n")
    ctx = replace(ctx, model=lambda run: model)
    run, cohorts = planned(ctx, 6, "asked")
    steps.generate(ctx, *cohorts)
    _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
    assert len(trials) == 1  # whichever island each was bred on
    assert len(settled(ctx, run)) == 5


def test_a_model_that_goes_away_costs_a_batch_no_child_that_was_generated(ctx: Context) -> None:
    model = Numbers(away=5)
    ctx = replace(ctx, model=lambda run: model)
    run, cohorts = planned(ctx, 4, "asked")
    with pytest.raises(Unavailable, match="the model is away"):
        steps.generate(ctx, *cohorts)
    with ctx.store.begin() as tx:
        backlog, known = tx.proposals.backlog(run.id), tx.runs.get(run.id)
    assert (backlog.evaluating, backlog.generating) == (2, 2)
    assert known.reason == "waiting: the model is away"
    asked = model.asked
    steps.generate(ctx, *cohorts)
    assert model.asked - asked == 3  # the plan of the third was stored, and is not paid for twice
    for _ in range(2):
        _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
        steps.evaluate(ctx, *trials)
    assert settled(ctx, run) == list(range(4))


def test_a_sandbox_that_goes_away_costs_a_batch_nothing_that_was_measured(ctx: Context) -> None:
    model = Numbers()
    sandbox = Wavering(Unavailable("no engine"))
    ctx = replace(ctx, model=lambda run: model, sandbox=sandbox)
    run, cohorts = planned(ctx, 5, "asked")
    steps.generate(ctx, *cohorts)
    _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
    sandbox.fails = sandbox.runs + 3
    with pytest.raises(Unavailable, match="no engine"):
        steps.evaluate(ctx, *trials)
    assert len(settled(ctx, run)) == 3
    runs = sandbox.runs
    steps.evaluate(ctx, *trials)
    assert sandbox.runs - runs == 2
    assert settled(ctx, run) == list(range(5))


def test_a_broken_evaluator_in_a_batch_fails_the_run_and_keeps_what_was_measured(
    ctx: Context,
) -> None:
    model = Numbers()
    sandbox = Wavering(EvaluatorBroken("evaluator.py, line 1: no"))
    ctx = replace(ctx, model=lambda run: model, sandbox=sandbox)
    run, cohorts = planned(ctx, 3, "asked")
    steps.generate(ctx, *cohorts)
    _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
    sandbox.fails = sandbox.runs + 1
    steps.evaluate(ctx, *trials)
    with ctx.store.begin() as tx:
        known = tx.runs.get(run.id)
    assert known.state is RunState.FAILED
    assert "evaluator.py, line 1" in known.reason
    assert len(settled(ctx, run)) == 1


def test_a_run_of_quick_steps_comes_to_share_messages(ctx: Context) -> None:
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=150, in_flight=64))
    messages = ctx.executor
    assert isinstance(messages, RecordedMessages)
    most: dict[str, int] = {}
    while messages.messages:
        step, subjects, together = messages.take()
        for n in range(0, len(subjects), together):
            some = subjects[n : n + together]
            most[step] = max(most.get(step, 0), len(some))
            table(ctx)[step](*some)
    with ctx.store.begin() as tx:
        final = tx.runs.get(run.id)
        shown = run_load(tx, final, tx.proposals.backlog(run.id))
    assert final.state is RunState.FINISHED
    assert shown.generating.text.endswith(", 8 a message)")
    assert (final.limits.generate_batch, final.limits.evaluate_batch) == (8, 8)
    assert (most["generate"], most["evaluate"], most["produce"]) == (8, 8, 1)
    assert settled(ctx, run) == list(range(150))
