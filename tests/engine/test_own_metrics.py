"""The evaluator's own metrics: in the rows of a run, in its generations and in its course."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.dashboard.reads import course_document, metric_document
from app.dashboard.tail import Tail
from app.domain.evaluation import Evaluation, Trial
from app.domain.problem import Outcome
from app.domain.program import Program, ProgramId
from app.engine.context import Context
from app.reports.generations import generations
from app.reports.metrics import history, rows
from app.reports.programs import INDEX, write_programs
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import interpret, problem

OURS = {"fitness": 7.0, "proposal": 8.0, "time": 9.0, "größe, in m": 1.7976931348623157e308}


def reporting(trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome) -> Evaluation:
    """Reports names of ours at the first stage; at the second, one of positive x alone."""
    measured = interpret(trial, programs, outcome)
    [player] = trial.players
    if outcome.result is None:
        return measured
    x = json.loads(outcome.result)["x"]
    late = {"root": x**0.5} if x > 0 else {}
    own = OURS if trial.stage == "cheap" else {"fitness": x, **late}
    return replace(measured, metrics={player: own})


@pytest.fixture
def finished(ctx: Context) -> int:
    toy = replace(problem(stages=("cheap", "full")), interpret=reporting)
    return run_to_the_end(ctx, toy, new_run(toy, budget=20))


def x_of(ctx: Context, program: str | None) -> float:
    with ctx.store.begin() as tx:
        return float(tx.programs.get([str(program)])[str(program)].source.split("=")[1])


def test_each_row_has_the_metrics_of_its_program_of_all_stages(ctx: Context, finished: int):
    measured = [row for row in rows(history(ctx.store, finished)) if row.state == "admitted"]

    assert {x_of(ctx, row.program) > 0 for row in measured} == {True, False}
    for row in measured:
        x = x_of(ctx, row.program)
        root = {"root": x**0.5} if x > 0 else {}
        assert row.metrics == {**OURS, "fitness": x, **root}
        assert row.fitness != row.metrics["fitness"]


def test_a_generation_has_the_mean_of_each_metric_over_those_that_have_it(
    ctx: Context, finished: int
):
    for row in generations(history(ctx.store, finished)):
        if row.avg_score is not None:
            assert row.avg_metrics["proposal"] == 8.0
            assert row.avg_metrics["größe, in m"] == OURS["größe, in m"]


def test_the_index_of_exported_programs_has_their_metrics(ctx: Context, finished: int, tmp_path):
    write_programs(ctx.store, rows(history(ctx.store, finished)), ".py", tmp_path)

    lines = [json.loads(line) for line in (tmp_path / INDEX).read_text().splitlines()]
    assert {line["metrics"]["time"] for line in lines if line["fitness"] is not None} == {9.0}


def test_the_course_of_a_metric_has_each_measured_program_and_each_best(
    ctx: Context, finished: int
):
    tail = Tail(ctx.store, finished)
    asyncio.run(tail.complete())
    with ctx.store.begin() as tx:
        run = tx.runs.get(finished)

    document = course_document(run, tail.course)
    found = metric_document(run, tail.course, "fitness")

    assert document.metrics == sorted({*OURS, "root"})
    assert [point.program for point in found.points] == [p.program for p in document.points]
    assert [best.program for best in found.best] == [b.program for b in document.improvements]
    for point in (*found.points, *found.best):
        assert point.value == x_of(ctx, point.program)
    rooted = metric_document(run, tail.course, "root").points
    assert 0 < len(rooted) < len(found.points)
    assert all(point.value == x_of(ctx, point.program) ** 0.5 for point in rooted)
    with pytest.raises(LookupError, match="no measured program of toy-run has the metric 'speed'"):
        metric_document(run, tail.course, "speed")
