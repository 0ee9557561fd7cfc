"""Pictures, tables and parts of pages that cannot be made: the results are there all the same."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from app.reports import plots, report
from app.reports.folder import draw
from tests.integration.cli import CONFIG, Evoq, problem_folder

pytestmark = pytest.mark.usefixtures("servers")

RESULTS = {"best.json", "best_program.py", "metrics.csv", "metrics.jsonl", "settings.json"}
LARGEST = "1.7976931348623157e308"
MARKING = f"""\
import importlib.util


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    error = abs(program.value() - 10.0)
    best = int(1000 * program.value()) % 2 == 0
    return {{
        "combined_score": -error if best else -{LARGEST},
        "cost": 1.0 if best else {LARGEST},
        "odd [/b] $name$ :smile:": 5e-324,
    }}
"""
MARKED = CONFIG.replace("[complexity]", "[cost, complexity]")
RUN = ("--iterations", "8", "--no-model", "--reproducible", "--set", "search.grid_after=4")


def failing(*_: object) -> object:
    raise ArithmeticError("Singular matrix")


@pytest.fixture
def drawing(evoq: Evoq, monkeypatch: pytest.MonkeyPatch) -> Evoq:
    """Lets commands draw."""
    monkeypatch.setattr("app.reports.folder.draw", draw)
    return evoq


def test_a_run_that_marks_what_it_cannot_measure_ends_and_is_reported(drawing: Evoq, place: Path):
    folder = problem_folder(place / "marking", evaluator=MARKING, config=MARKED)

    run = drawing("run", folder, *RUN, "--name", "marking")
    resumed = drawing("resume", "marking", "--json")
    shown = drawing("show", "marking")
    reported = drawing("report", "marking", "--out", place / "report.html", "--json")

    assert run.code == 0, run.err
    assert "odd [/b] $name$ :smile:" in run.out
    assert "axis `cost`" in shown.out
    assert (shown.code, "odd [/b] $name$ :smile:" in shown.out) == (0, True)
    assert (resumed.code, resumed.json["state"]) == (0, "finished")
    files = {path.name for path in (place / "runs/marking").iterdir()}
    assert files == RESULTS | {"evolution.png", "failures.png", "archive.png"}
    assert (reported.code, reported.json["notices"]) == (0, [])
    assert (place / "report.html").read_text().count("data:image/png") == 3


def test_generations_of_marked_programs_have_a_mean_and_a_picture(drawing: Evoq, place: Path):
    folder = problem_folder(place / "marking", evaluator=MARKING, config=MARKED)
    recipe = ("--set", "search.strategy=funsearch_lite", "--name", "generations")
    run = drawing("run", folder, *RUN, *recipe)
    assert (run.code, "could not be made" in run.err) == (0, False)

    metrics = drawing("metrics", "generations", "--by", "generation", "--json")
    plotted = drawing("plot", "generations", "--json")

    assert metrics.code == 0, metrics.err
    assert all(row["avg_score"] < 0 for row in metrics.json if row["num_valid"])
    assert plotted.code == 0, plotted.json
    assert (place / "runs" / "generations" / "generations.png").is_file()


@pytest.mark.parametrize("way", ["one", "all"])
def test_a_run_whose_pictures_cannot_be_drawn_has_its_results(
    drawing: Evoq, place: Path, monkeypatch: pytest.MonkeyPatch, way: str
):
    def absent() -> ModuleType:
        raise ImportError("numpy.core.multiarray failed to import")

    breaking: dict[str, Callable[[], None]] = {
        "one": lambda: monkeypatch.setattr(plots, "evolution", failing),
        "all": lambda: monkeypatch.setattr("app.reports.folder.plots", absent),
    }
    breaking[way]()
    folder = problem_folder(place / "undrawn")

    result = drawing("run", folder, *RUN, "--name", f"undrawn-{way}", "--json")
    plotted = drawing("plot", f"undrawn-{way}", "--out", place / "pictures", "--json")

    assert result.code == 0, result.err
    assert (result.json["state"], result.json["best"]["fitness"] >= -6.5) == ("finished", True)
    assert "notice: evolution.png could not be made: " in result.err
    assert len(result.json["notices"]) == (1 if way == "one" else 3)
    files = {path.name for path in (place / "runs" / f"undrawn-{way}").iterdir()}
    assert files == RESULTS | ({"failures.png", "archive.png"} if way == "one" else set())
    assert plotted.code == 1
    assert "evolution.png could not be made" in plotted.json["error"]
    assert len(plotted.json["files"]) == (2 if way == "one" else 0)


def test_a_table_that_cannot_be_printed_does_not_end_a_finished_run(
    evoq: Evoq, place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.cli.ending.print_best", failing)

    result = evoq("run", problem_folder(place / "untold"), *RUN, "--name", "untold")

    assert result.code == 0, result.err
    assert "8 proposals settled" in result.out
    assert "notice: the best program's table could not be made: ArithmeticError" in result.err


def test_a_section_that_cannot_be_made_is_named_in_the_report(
    evoq: Evoq, place: Path, monkeypatch: pytest.MonkeyPatch
):
    assert evoq("run", problem_folder(place / "section"), *RUN, "--name", "section").code == 0
    monkeypatch.setattr(report, "lineage", failing)
    monkeypatch.setattr(report, "draw", draw)
    monkeypatch.setattr(plots, "archive", failing)

    result = evoq("report", "section", "--out", place / "report.html", "--json")

    assert result.code == 0, result.err
    assert [text.partition(" could")[0] for text in result.json["notices"]] == [
        "archive.png",
        "section 'Lineage of the best' of section",
    ]
    page = (place / "report.html").read_text()
    assert "could not be made: ArithmeticError: Singular matrix" in page
    assert page.count("data:image/png") == 2
    assert "Settings" in page


def test_a_comparison_without_its_picture_has_its_results(
    evoq: Evoq, place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plots, "arms", failing)
    order = ("--arms", "map_elites", "--seeds", "1", "--iterations", "2", "--no-model", "--json")

    result = evoq("compare", problem_folder(place / "arms"), *order, "--name", "unpictured")

    assert result.code == 0, result.err
    assert list(result.json["problems"][0]["arms"]) == ["map_elites", "random"]
    assert result.json["notices"] == [
        "arms.png could not be made: ArithmeticError: Singular matrix"
    ]
    written = {path.name for path in (place / "runs/unpictured").iterdir()}
    assert written == {"comparison.json", "comparison.md", "comparison.html"}
    assert "arms.png could not be made" in (place / "runs/unpictured/comparison.md").read_text()
