"""A ledger with any finite doubles: what is searched, read, drawn, exported and scraped of it."""

import io
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from app.dashboard.metrics import scrape
from app.dashboard.pages import charts
from app.dashboard.reads import RunReader, course_document
from app.domain.evaluation import Evaluation, Trial
from app.domain.events import EventKind
from app.domain.problem import Axis, Outcome, Problem
from app.domain.program import Program, ProgramId
from app.domain.run import Run, RunState
from app.domain.search.archive import bin_index
from app.engine.context import Context
from app.reports import comparison, report
from app.reports.arms import ArmRun, Comparison, ProblemComparison, arm_run
from app.reports.bands import comparison as comparison_document
from app.reports.checkpoint import write_checkpoint
from app.reports.course import read_course
from app.reports.documents import RunDocument, to_json
from app.reports.folder import write
from app.reports.generations import generations
from app.reports.ledger_file import read_ledger, verified, write_ledger
from app.reports.metrics import history, rows, write_csv, write_jsonl
from app.reports.summary import summarise
from app.reports.waiting import QueueState
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import problem
from tests.unit.domain.test_finite import EXTREMES

NO_QUEUE = "redis://127.0.0.1:9/0"
AXES = (Axis("cost", 6), Axis("length", 4))
RECIPES = [
    ("map_elites", {}),
    ("funsearch", {}),
    ("funsearch_lite", {"selection": "weighted", "mutations": 4, "top_k": 3}),
    ("funsearch_lite", {"selection": "lexicase", "mutations": 4, "steady": True, "top_k": 2}),
]


def measured(source: str, of: int) -> float:
    """Returns a number that follows from a text."""
    return EXTREMES[zlib.crc32(source.encode()) // 10**of % len(EXTREMES)]


def interpret(trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome) -> Evaluation:
    if outcome.result is None:
        return Evaluation(failure=outcome.failure, verified=True)
    [player] = trial.players
    source = programs[player].source
    cost, length = measured(source, 2), float(len(source))
    return Evaluation(
        scores={player: {"one": measured(source, 0), "other": measured(source, 1)}},
        metrics={player: {"cost": cost}},
        features={player: {"cost": cost, "length": length}},
        verified=True,
    )


def extreme(**parts: Any) -> Problem:
    return replace(problem(axes=AXES, **parts), interpret=interpret)


def searched(ctx: Context, toy: Problem, recipe: str, name: str = "toy-run", **own: Any) -> Run:
    order = new_run(toy, budget=24, in_flight=8, grid_after=6)
    settings = {**order.settings, "strategy": own}
    order = replace(order, strategy=recipe, settings=settings, name=name)
    run = run_to_the_end(ctx, toy, order)
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


def strict(value: Any) -> str:
    """Returns JSON, which has no infinity."""
    return json.dumps(value, allow_nan=False, default=lambda other: asdict(other))


@pytest.mark.parametrize(("recipe", "own"), RECIPES)
def test_any_recipe_ends_and_its_metrics_are_written(
    ctx: Context, recipe: str, own: dict[str, Any]
):
    run = searched(ctx, extreme(stages=("cheap", "full")), recipe, **own)

    assert (run.state, run.reason) == (RunState.FINISHED, "budget of 24 proposals spent")
    reader = RunReader(ctx.store, NO_QUEUE, lambda digest: problem(), QueueState)
    strict(charts.by_generation(reader.generations(run)))
    in_generations = recipe == "funsearch_lite" and not own.get("steady")
    assert bool(reader.generations(run)) == in_generations
    settled = list(history(ctx.store, run.id))
    fitness = {one.fitness for one in settled if one.fitness is not None}
    assert max(map(abs, fitness)) > 1e300
    for table in (list(rows(settled)), generations(settled)):
        strict([asdict(row) for row in table])
        write_jsonl(table, io.StringIO())
        columns = list(asdict(table[0]))
        write_csv(table, io.StringIO(), columns)


def test_marks_are_left_out_of_a_range_that_is_learnt_and_a_notice_says_so(ctx: Context):
    run = searched(ctx, extreme(), "map_elites")

    with ctx.store.begin() as tx:
        [notice] = tx.events.read(run.id, kinds=(EventKind.NOTICED,))
        placed = tx.history.placed(run.id, 100)
    assert "axis `cost`" in notice.data["text"]
    assert "taken for no measurement" in notice.data["text"]
    cost, _ = run.axes
    assert cost.high is not None
    assert cost.high < 1e100
    for settled, evaluations in placed:
        value = evaluations[0].features[str(settled.program)]["cost"]
        assert type(value) is float
        assert 0 <= bin_index(cost, value) < cost.bins


def test_everything_is_read_drawn_and_exported(ctx: Context, tmp_path: Path):
    toy = extreme()
    run = searched(ctx, toy, "map_elites")
    ctx = replace(ctx, problem=lambda digest: toy)
    summary = summarise(ctx.store, run.id, toy)
    assert summary.best is not None

    assert write(ctx.store, summary, toy, tmp_path / "out") == []
    missing: list[Any] = []
    assert report.report(ctx.store, [(summary, toy)], missing.append).count("data:image/png") == 3
    assert missing == []
    strict(to_json(RunDocument(summary)))
    write_checkpoint(ctx.store, summary, toy, tmp_path / "output")
    with (tmp_path / "ledger.gz").open("wb") as file:
        write_ledger(ctx.store, run, file)
    copied = verified(tmp_path / "ledger.gz", lambda *_: toy)
    again = read_ledger(ctx.store, copied, "again")
    ours, theirs = (list(rows(history(ctx.store, one.id))) for one in (run, again))
    assert [row.fitness for row in ours] == [row.fitness for row in theirs]


def test_every_page_and_document_is_made_of_finite_numbers(ctx: Context):
    toy = extreme()
    run = searched(ctx, toy, "map_elites")
    reader = RunReader(ctx.store, NO_QUEUE, lambda digest: toy, QueueState)
    course = read_course(ctx.store, run.id)
    best = course.improvements[-1].program

    documents: list[Callable[[], Any]] = [
        lambda: reader.runs(),
        lambda: to_json(reader.document(run)),
        lambda: reader.proposals(run, 0, 100),
        lambda: reader.archive(run),
        lambda: reader.program(run, best),
        lambda: reader.proposal(run, 0),
        lambda: reader.lineage(run, best),
        lambda: reader.tree(run, course.improvements),
        lambda: course_document(run, course),
        lambda: [event.data for event in events(ctx, run)],
        lambda: charts.curve(course.points, course.improvements, 24, {"low": EXTREMES[1]}),
        lambda: charts.curves({run.name: course.improvements}, {run.name: 24}),
        lambda: charts.grid_map(reader.archive(run), None, 0, 1),
    ]
    for made in documents:
        text = strict(made())
        assert all(type(value) is not int or value < 2**63 for value in numbers(json.loads(text)))
    assert b'evoq_best_fitness{run="toy-run"} ' in scrape(reader)


def events(ctx: Context, run: Run) -> list[Any]:
    with ctx.store.begin() as tx:
        return list(tx.events.read(run.id))


def numbers(value: Any) -> list[Any]:
    """Returns the numbers in a document."""
    match value:
        case dict():
            return [number for part in value.values() for number in numbers(part)]
        case list():
            return [number for part in value for number in numbers(part)]
        case int() | float():
            return [value]
        case _:
            return []


def test_arms_are_compared_on_the_page_and_in_the_report(ctx: Context, tmp_path: Path):
    toy = extreme()
    arms: dict[str, tuple[ArmRun, ...]] = {}
    for arm, recipe in (("one", "map_elites"), ("random", "random")):
        runs = []
        for seed in (1, 2):
            run = searched(ctx, toy, recipe, name=f"mine.toy.{arm}.{seed}")
            table = list(rows(history(ctx.store, run.id)))
            found = arm_run(run.name, seed, 24, table)
            assert found is not None
            runs.append(found)
        arms[arm] = tuple(runs)
    problem_of = ProblemComparison("toy", arms, "random")
    result = Comparison("mine", 24, (problem_of,), {}, {})

    strict(to_json(comparison.document(result)))
    assert comparison.write(result, tmp_path).missing == []
    page = comparison_document(ctx.store, "mine")
    strict(asdict(page))
    strict(charts.bands(page.problems[0].arms))
