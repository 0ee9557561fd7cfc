"""The documents of `--json` and of `/api`, compared with files."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.client import target
from app.dashboard.server import Place, Serving, serving
from app.domain.operator import Completion
from app.domain.run import Run
from app.engine import lifecycle
from app.engine.context import Context
from app.reports.arms import Comparison, ProblemComparison, arm_run, differing
from app.reports.comparison import document
from app.reports.documents import to_json
from app.reports.metrics import metrics_of
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.golden import FOLDER, require_golden
from tests.engine.test_dashboard import NO_QUEUE, TOKEN, get
from tests.engine.test_replies import Answering
from tests.engine.test_validation import TOY
from tests.integration.cli import Evoq
from tests.unit.cli.remedies import replace_everywhere

BUDGET = 4
COMPARISON = "compare-1"
ARMS = ("map_elites", "random")


@pytest.fixture
def evoq(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Evoq:
    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    monkeypatch.setenv("EVOQ_REDIS_URL", NO_QUEUE)
    replace_everywhere(monkeypatch, target, "stored_problem", lambda store, run: TOY)
    return Evoq(capsys)


@pytest.fixture
def served(ctx: Context) -> Iterator[Serving]:
    toy = replace(ctx, problem=lambda digest: TOY)
    with serving(toy, NO_QUEUE, Place(port=0, token=TOKEN), pages=False) as dashboard:
        yield dashboard


def finished(ctx: Context) -> Run:
    """Returns a run that has ended, and was validated."""
    run = run_to_the_end(ctx, TOY, new_run(TOY, budget=BUDGET, islands=1, validate_best=2))
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


def asked(ctx: Context) -> Run:
    """Returns a run whose programs a model wrote."""
    model = Answering(lambda prompt: Completion(f"x = {prompt.sample + 1}.5\n", "answering"))
    new = replace(new_run(TOY, budget=1, islands=1), name="asked-run", operators={"asked": 1.0})
    run = run_to_the_end(replace(ctx, model=lambda run: model), TOY, new)
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


def begun(ctx: Context) -> Run:
    """Returns a run that goes on, of which no step has been made."""
    new = replace(new_run(TOY, budget=BUDGET, islands=1), name="begun-run")
    run = lifecycle.start(replace(ctx, problem=lambda digest: TOY), TOY, new)
    with ctx.store.begin() as tx:
        return tx.runs.get(run.id)


def compared(ctx: Context) -> list[Run]:
    """Returns the runs of a comparison that has ended."""
    names = [(arm, seed) for seed in (1, 2) for arm in ARMS]
    runs = []
    for arm, seed in names:
        new = new_run(TOY, budget=BUDGET, islands=1, seed=seed, strategy=arm)
        new = replace(new, name=f"{COMPARISON}.toy.{arm}.{seed}", strategy=arm)
        runs.append(run_to_the_end(ctx, TOY, new))
    with ctx.store.begin() as tx:
        return [tx.runs.get(run) for run in runs]


def child_of(evoq: Evoq, run: str) -> str:
    """Returns the first program that a proposal of the run made."""
    rows = evoq("metrics", run, "--json").json
    return next(str(row["program"]) for row in rows if row["ordinal"] == 0)


def test_the_documents_of_the_commands_are_those_of_the_files(ctx: Context, evoq: Evoq) -> None:
    made = finished(ctx)
    asked(ctx)
    child = child_of(evoq, "asked-run")
    more = ("--program", child[:12], "--diff", "--prompt", "--reply")
    require_golden("show", evoq("show", made.name, "--json").json)
    require_golden("show_program", evoq("show", "asked-run", *more, "--json").json)
    require_golden("list_runs", evoq("list-runs", "--json").json)
    require_golden("costs", evoq("costs", "--json").json)

    begun(ctx)
    require_golden("show_running", evoq("show", "begun-run", "--json").json)


def test_the_document_of_a_comparison_is_that_of_its_file(ctx: Context) -> None:
    arms: dict[str, list[Run]] = {}
    for run in compared(ctx):
        arms.setdefault(run.strategy, []).append(run)
    measured = {
        arm: tuple(
            found
            for run in runs
            if (found := arm_run(run.name, run.seed, BUDGET, list(metrics_of(ctx.store, run))))
        )
        for arm, runs in arms.items()
    }
    settings = differing({arm: runs[0].settings for arm, runs in arms.items()})
    problems = (ProblemComparison("toy", measured, ARMS[-1]),)
    result = Comparison(COMPARISON, BUDGET, problems, settings, {"late": "paused"})

    require_golden("compare", to_json(document(result)))


def test_the_documents_of_the_dashboard_are_those_of_the_files(
    ctx: Context, served: Serving, evoq: Evoq
) -> None:
    made, by_model = finished(ctx), asked(ctx)
    child = child_of(evoq, "asked-run")
    require_golden("list_runs", get(served, "/api/runs"))
    require_golden("show", get(served, f"/api/runs/{made.id}"))
    require_golden("api_course", get(served, f"/api/runs/{made.id}/course"))
    require_golden("api_archive", get(served, f"/api/runs/{made.id}/archive"))
    require_golden("api_program", get(served, f"/api/runs/{by_model.id}/programs/{child}"))
    require_golden("api_proposal", get(served, f"/api/runs/{by_model.id}/proposals/0"))
    require_golden("api_system", get(served, "/api/system"))

    compared(ctx)
    require_golden("api_comparisons", get(served, "/api/comparisons"))
    require_golden("api_comparison", get(served, f"/api/comparisons/{COMPARISON}"))


def test_the_document_and_the_course_of_a_run_have_the_same_counts_at_the_same_event(
    ctx: Context, served: Serving
) -> None:
    made = finished(ctx)

    document = get(served, f"/api/runs/{made.id}")
    course = get(served, f"/api/runs/{made.id}/course")

    assert document["seq"] == course["seq"] == made.events
    assert document["iterations"] == course["settled"]
    assert (document["failures"], document["cuts"]) == (course["failures"], course["cuts"])
    assert document["best"]["fitness"] == course["best"]


def test_the_files_of_documents_are_short() -> None:
    """People read in them which keys a change adds or takes away."""
    assert [path.name for path in FOLDER.iterdir() if path.stat().st_size > 20_000] == []
