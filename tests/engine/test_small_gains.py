"""A best that is nearly the start: every line, table, page and export tells them apart."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.cli.display import line
from app.client import target
from app.client.following import ProgressReader
from app.domain.evaluation import Evaluation, Trial
from app.domain.problem import Outcome, Problem
from app.domain.program import Program, ProgramId
from app.engine import lifecycle
from app.engine.context import Context
from app.reports import report
from app.reports.summary import summarise
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.toy import problem
from tests.integration.cli import Evoq
from tests.unit.cli.remedies import replace_everywhere

SEED = "x = 0.0\n"
START, BEST = 2.63499997, 2.6349999751384496
START_TEXT, BEST_TEXT = "2.63499997", "2.63499998"


def interpret(trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome) -> Evaluation:
    """Every child is better than the seed, from the ninth digit on."""
    if outcome.result is None:
        return Evaluation(failure=outcome.failure, verified=True)
    [player] = trial.players
    fitness = START if programs[player].source == SEED else BEST
    return Evaluation(
        scores={player: {"near": fitness}},
        metrics={player: {"radii": fitness, "other": 1 / 3}},
        features={player: {"x": 1.0}},
        verified=True,
    )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Problem:
    toy = replace(problem(), interpret=interpret, baselines={"seed": Program(SEED).id})
    replace_everywhere(monkeypatch, target, "stored_problem", lambda store, run: toy)
    return toy


@pytest.fixture
def evoq(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Evoq:
    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:9/0")
    return Evoq(capsys)


def test_the_command_line_tells_the_best_from_the_start(
    ctx: Context, toy: Problem, evoq: Evoq, tmp_path: Any
):
    run = run_to_the_end(ctx, toy, new_run(toy))
    with ctx.store.begin() as tx:
        best = tx.history.best(run)
    assert best is not None
    assert best.fitness == BEST

    listed = evoq("list-runs")
    assert f" {BEST_TEXT} " in listed.out
    assert evoq("list-runs", "--json").json[0]["start"] == START
    assert f"best {BEST_TEXT}" in evoq("watch", "toy-run").out
    exported = evoq("export-best", "toy-run", "--out", str(tmp_path / "best.py"))
    assert f"fitness {BEST_TEXT}" in exported.out
    for program, text in ((best.program, BEST_TEXT), (Program(SEED).id, START_TEXT)):
        shown = evoq("show", "toy-run", "--program", str(program)[:12]).out
        assert f"radii {text}" in shown
        assert "other 0.333333," in shown or "other 0.333333 " in shown
    whole = evoq("show", "toy-run").out
    assert BEST_TEXT in whole
    assert START_TEXT in whole


def test_the_first_lines_after_a_resume_tell_the_best_from_the_start(ctx: Context, toy: Problem):
    own = replace(ctx, problem=lambda digest: toy)
    run = lifecycle.start(own, toy, new_run(toy, budget=24))
    assert isinstance(own.executor, InlineExecutor)
    steps = 0

    def interrupted() -> bool:
        nonlocal steps
        steps += 1
        return steps > 20

    own.executor.drain(table(own), interrupted)
    lifecycle.pause(own, run.id, "interrupted")
    lifecycle.resume(own, run.id)
    reader = ProgressReader(own.store, run.id)

    first = reader.read()
    assert (first.progress.best, first.progress.best_before) == (BEST, None)
    assert f"best {BEST_TEXT}," in line(first)
    own.executor.drain(table(own), lambda: False)
    assert f"best {BEST_TEXT}," in line(reader.read())


def test_a_report_tells_the_best_from_the_start(ctx: Context, toy: Problem):
    run = run_to_the_end(ctx, toy, new_run(toy))

    text = report.report(ctx.store, [(summarise(ctx.store, run, toy), toy)], lambda _: None)

    assert text.count(BEST_TEXT) >= 3
    assert START_TEXT in text
    assert "2.635<" not in text
