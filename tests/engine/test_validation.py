"""Validation: the best programs of a run are measured on data that the search never saw."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.client.following import ProgressReader
from app.domain.evaluation import Cases, Evaluation, Failure, FailureKind, Trial
from app.domain.events import SETTLING, EventKind, Validated
from app.domain.problem import Job, Outcome, Problem
from app.domain.program import Program, ProgramId
from app.domain.run import RunState
from app.domain.search.budget import Budget
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop
from app.reports.documents import RunDocument, to_json
from app.reports.report import report
from app.reports.summary import Summary, summarise
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.executors import RecordedMessages
from tests.engine.toy import ToySandbox, interpret, problem

REFERENCE = Program("x = 2.5  # published\n")
VALIDATION = "validation"


def by_another_number(
    trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
) -> Evaluation:
    """Validates by the distance to 2.5; what is below 2 crashes there, and there only."""
    if trial.stage != VALIDATION or outcome.result is None:
        return interpret(trial, programs, outcome)
    x, [player] = json.loads(outcome.result)["x"], trial.players
    if x < 2.0:
        return Evaluation(failure=Failure(FailureKind.RUNTIME, "below 2\nof the data"))
    scores = {case: -abs(x - 2.5) for case in trial.cases}
    return Evaluation({player: scores}, metrics={player: {"validated": x}}, verified=True)


TOY = replace(
    problem(),
    interpret=by_another_number,
    validation=VALIDATION,
    references={"published": REFERENCE},
    baselines={"nought": problem().seeds[0].id},
    cases=Cases({VALIDATION: (("a",), ("b",))}),
)


class CountingSandbox(ToySandbox):
    """Counts the trials of each stage and program."""

    def __init__(self) -> None:
        super().__init__()
        self.trials: Counter[tuple[str, bytes]] = Counter()

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        self.trials[job.function, job.programs[0][1]] += 1
        return super().run(job, stop)

    @property
    def validated(self) -> dict[bytes, int]:
        return {program: n for (stage, program), n in self.trials.items() if stage == VALIDATION}


def finished(ctx: Context, toy: Problem = TOY, **search: Any) -> tuple[int, Summary]:
    run = run_to_the_end(ctx, toy, new_run(toy, budget=24, **search))
    return run, summarise(ctx.store, run, toy)


def test_the_best_by_validation_is_the_result_of_a_run(ctx: Context) -> None:
    run, summary = finished(ctx)

    with ctx.store.begin() as tx:
        fittest, events = tx.history.best(run), tx.events.read(run)
    kinds = [event.kind for event in events]
    assert summary.run.state is RunState.FINISHED
    assert summary.iterations == 24
    assert max(n for n, kind in enumerate(kinds) if kind in SETTLING) < kinds.index("validated")
    assert kinds[-1] is EventKind.FINISHED
    best, searched = summary.best, [one for one in summary.validated if one.admitted]
    assert best is not None
    assert best.validation is not None
    assert fittest is not None
    assert fittest.program != best.measured.program
    assert (best.measured.fitness or 0) < (fittest.fitness or 0), "its own score in the search"
    assert best.validation.fitness == max(
        one.measured.fitness for one in searched if one.measured.fitness is not None
    )
    assert len(searched) == 11, "ten, and the baseline"
    assert len({one.measured.program for one in searched}) == 11


def test_both_scores_are_in_the_documents_and_in_the_report(ctx: Context) -> None:
    _, summary = finished(ctx)

    written = to_json(RunDocument(summary))
    text = report(ctx.store, [(summary, TOY)], [].append)

    best, first = written["best"], written["validated"][0]
    assert summary.best is not None
    [mine] = [one for one in written["validated"] if one["program"] == best["program"]]
    assert best["validation"]["fitness"] == mine["fitness"]
    assert best["fitness"] == mine["search_fitness"]
    assert best["validation"]["metrics"]["validated"] == pytest.approx(
        float(best["source"].split("=")[1])
    )
    assert (first["names"], first["ordinal"], first["fitness"]) == (["published"], None, 0.0)
    assert best["program"] != first["program"], "a reference is no result"
    assert "<h3>Validation</h3>" in text
    assert "<code>published</code>" in text
    assert "runtime: below 2" in text


def test_a_program_that_fails_validation_is_left_out_with_the_reason(ctx: Context) -> None:
    run, summary = finished(ctx)

    [nought] = [one for one in summary.validated if one.names == ("nought",)]
    with ctx.store.begin() as tx:
        events = tx.events.read(run, kinds=[EventKind.VALIDATED])
    facts = {fact.program: fact for event in events if isinstance(fact := event.fact, Validated)}
    assert nought.failure == Failure(FailureKind.RUNTIME, "below 2\nof the data")
    assert nought.measured.fitness is None
    assert facts[nought.measured.program].failure is FailureKind.RUNTIME
    assert len(facts) == len(summary.validated)


def test_the_best_by_search_is_the_result_where_all_fail(ctx: Context) -> None:
    def failing(
        trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
    ) -> Evaluation:
        if trial.stage == VALIDATION:
            return Evaluation(failure=Failure(FailureKind.TIMEOUT))
        return interpret(trial, programs, outcome)

    run, summary = finished(ctx, replace(TOY, interpret=failing))

    with ctx.store.begin() as tx:
        fittest = tx.history.best(run)
    assert fittest is not None
    assert summary.best is not None
    assert summary.best.measured.program == fittest.program
    assert summary.best.validation is None


@pytest.mark.parametrize(("most", "of_the_search"), [(3, 4), (0, 0)])
def test_the_setting_says_how_many_are_validated(
    ctx: Context, most: int, of_the_search: int
) -> None:
    sandbox = CountingSandbox()

    _, summary = finished(replace(ctx, sandbox=sandbox), validate_best=most)

    assert sum(one.admitted is not None for one in summary.validated) == of_the_search
    assert len(sandbox.validated) == (of_the_search + 1 if most else 0)


def test_programs_that_measure_alike_are_validated_once(ctx: Context) -> None:
    def rounded(
        trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
    ) -> Evaluation:
        if trial.stage == VALIDATION:
            return Evaluation({trial.players[0]: {"a": 1.0}})
        measured, [player] = interpret(trial, programs, outcome), trial.players
        if measured.failure:
            return measured
        near = float(round(measured.scores[player]["near"]))
        return replace(measured, scores={player: {"near": near}}, metrics={player: {"x": near}})

    run, summary = finished(ctx, replace(TOY, interpret=rounded))

    with ctx.store.begin() as tx:
        scores = {one.fitness for one in tx.history.settled(run) if one.fitness is not None}
    searched = [one.admitted for one in summary.validated if one.admitted]
    assert len(scores) < 10
    assert sorted(one.fitness or 0.0 for one in searched) == sorted(scores)


def test_a_run_that_is_stopped_meanwhile_validates_the_rest_when_it_goes_on(ctx: Context) -> None:
    sandbox = CountingSandbox()
    ctx = replace(ctx, sandbox=sandbox, problem=lambda digest: TOY)
    run = lifecycle.start(ctx, TOY, new_run(TOY, budget=20))
    executor: Any = ctx.executor
    executor.drain(table(ctx), lambda: len(sandbox.validated) == 4)
    assert lifecycle.cancel(ctx, run.id)
    executor.drain(table(ctx), lambda: False)
    stopped = summarise(ctx.store, run.id, TOY)
    assert stopped.best is not None
    assert stopped.best.validation is None, "not all of them are validated"

    assert lifecycle.resume(ctx, run.id)
    executor.drain(table(ctx), lambda: False)

    summary = summarise(ctx.store, run.id, TOY)
    assert summary.run.state is RunState.FINISHED
    assert summary.iterations == 20
    assert summary.best is not None
    assert summary.best.validation is not None
    assert set(sandbox.validated.values()) == {2}, "each case once"


def test_a_larger_budget_validates_only_what_is_new(ctx: Context) -> None:
    sandbox = CountingSandbox()
    ctx = replace(ctx, sandbox=sandbox, problem=lambda digest: TOY)
    run, before = finished(ctx)

    assert lifecycle.resume(ctx, run, Budget(60))
    executor: Any = ctx.executor
    executor.drain(table(ctx), lambda: False)

    after = summarise(ctx.store, run, TOY)
    assert after.run.state is RunState.FINISHED
    assert {one.measured.program for one in before.validated} < {
        one.measured.program for one in after.validated
    }
    assert set(sandbox.validated.values()) == {2}, "each case once"


def test_the_trials_of_a_validation_are_wanted_and_found_again(ctx: Context) -> None:
    messages = RecordedMessages()
    ctx = replace(ctx, executor=messages, problem=lambda digest: TOY)
    run = lifecycle.start(ctx, TOY, new_run(TOY, budget=3))
    answers = table(ctx)
    trials: tuple[int, ...] = ()
    while not trials:
        step, subjects, _ = messages.take()
        with ctx.store.begin() as tx:
            planned = tx.history.validations(run.id)
        if planned and step == "evaluate":
            trials = subjects
        else:
            answers[step](*subjects)
    messages.messages.clear()

    assert ProgressReader(ctx.store, run.id).read().validating == len(planned)
    with ctx.store.begin() as tx:
        assert tx.leases.withdrawn([], list(trials)) == ([], [])
        tx.leases.release([], list(trials), 0.0)
    steps.produce(ctx, run.id)
    assert not messages.messages, "they are planned once"
    with ctx.store.begin() as tx:
        waiting = tx.leases.overdue(run.id, 30.0)[1]

    assert [trial.id for trial in waiting] == sorted(trials)


def test_a_run_without_validation_data_ends_as_before(ctx: Context) -> None:
    toy = problem()
    run = run_to_the_end(ctx, toy, new_run(toy, budget=5))

    summary = summarise(ctx.store, run, toy)

    assert summary.validated == ()
    assert summary.best is not None
    assert summary.best.validation is None
