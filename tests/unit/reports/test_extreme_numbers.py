"""Charts and pictures of any finite fitness: what can be drawn is, and what is left out is said."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.dashboard.pages import charts
from app.dashboard.pages.charts import bands, curve, curves, grid_map
from app.dashboard.reads import ArchiveDocument, CellDocument
from app.domain.digits import exact_text, number_texts
from app.domain.problem import Axis
from app.domain.search.archive import Elite
from app.reports.arms import superiority
from app.reports.bands import ArmBand, band
from app.reports.course import Improvement, MeasuredProposal
from app.reports.folder import draw_files
from app.reports.generations import generations
from app.reports.plots import archive, arms, by_generation, evolution
from app.reports.view import scale_of
from tests.unit.domain.test_finite import DOUBLES, LARGEST
from tests.unit.reports.test_course import course, events
from tests.unit.reports.test_metrics import proposal
from tests.unit.reports.test_plots import elite, improving

FITNESS = st.lists(DOUBLES, min_size=1, max_size=12)
AXES = (Axis("cost", 3, -LARGEST, LARGEST), Axis("size", 2, 0.0, 5e-324))
MARKED = [-30.0, -LARGEST, -29.0, -LARGEST, -28.5, -LARGEST, -LARGEST]
LISTS = {
    "marks below": MARKED,
    "a mark above": [-3.0, -2.0, LARGEST],
    "all near the largest": [-1.2e308, -1.20000001e308, -1.1e308],
    "from the least to the largest": [-LARGEST, -1e300, 0.0, 1e300, LARGEST],
    "next to nothing": [5e-324, 1e-323, -5e-324],
    "alike": [LARGEST] * 3,
}


def drawable(options: object) -> bool:
    """Returns whether a browser draws a chart: its numbers have finite differences and squares."""
    text = json.dumps(options, allow_nan=False)

    def sound(value: object) -> bool:
        match value:
            case dict():
                return all(map(sound, value.values()))
            case list():
                return all(map(sound, value))
            case float():
                return abs(value) < 1e150
            case _:
                return True

    return sound(json.loads(text))


def chart(fitness: list[float]) -> dict[str, object]:
    points = [MeasuredProposal(n, 1.0, f, "a" * 64, 0, "tune", True) for n, f in enumerate(fitness)]
    best = [Improvement(0, 1.0, fitness[0], "a" * 64, "tune", "")]
    best += [Improvement(len(fitness), 1.0, max(fitness), "a" * 64, "tune", "")]
    return curve(points, best, len(fitness), {"seed": fitness[0]})


@given(FITNESS)
def test_a_chart_of_any_fitness_can_be_drawn(fitness: list[float]):
    best = [Improvement(n, 1.0, value, "a" * 64, "tune", "") for n, value in enumerate(fitness)]

    assert drawable(chart(fitness))
    assert drawable(curves({"run": best, "none": []}, {"run": 99, "none": 0}))


@given(st.lists(st.none() | DOUBLES, max_size=12))
def test_the_generations_of_any_run_can_be_drawn(fitness: list[float | None]):
    settled = [proposal(n, value, cohort=n // 2) for n, value in enumerate(fitness)]

    options = charts.by_generation(generations(settled))

    assert drawable(options)
    left, room = options["grid"][0]["left"], 200
    assert left <= room
    assert left == options["grid"][1]["left"]


@given(st.lists(st.none() | DOUBLES, max_size=12))
def test_the_texts_of_any_numbers_differ_where_they_do(fitness: list[float | None]):
    texts = number_texts(fitness, [*fitness, 1.7e308, -1.7e308])

    assert len({*texts}) == len({*fitness})
    assert all(value is None or float(exact_text(value)) == value for value in fitness)


@given(st.lists(FITNESS, min_size=1, max_size=3))
def test_a_band_of_any_runs_can_be_drawn(runs: list[list[float]]):
    steps = [list(enumerate(sorted(run))) for run in runs]

    options = bands({"arm": ArmBand(len(runs), band(steps, 20))})

    assert drawable(options)
    low, width, _ = options["series"]
    assert all(value >= 0 for _, value in width["data"])
    assert len(low["data"]) == len(width["data"])


@given(FITNESS)
def test_the_grid_of_any_cells_can_be_drawn(fitness: list[float]):
    cells = [
        CellDocument(0, [n % 3, n // 3 % 2], "a" * 64, value, 1, 0)
        for n, value in enumerate(fitness)
    ]

    options = grid_map(ArchiveDocument(list(AXES), [len(cells)], cells), None, 0, 1)

    shades = options["visualMap"]
    assert drawable([shades, options["xAxis"], options["yAxis"]])
    assert shades["min"] <= shades["max"]


@pytest.mark.parametrize("fitness", LISTS.values(), ids=LISTS)
def test_pictures_of_any_fitness_are_drawn(fitness: list[float], tmp_path: Path):
    cells = [elite(value, n % 3, n % 2) for n, value in enumerate(fitness)]
    loose = [(0, Elite("a", value, 10, 1, ("x",))) for value in fitness]
    seen = course(events(*improving(*fitness)))
    settled = [proposal(n, value, cohort=n // 2) for n, value in enumerate(fitness)]

    made = draw_files(
        {
            tmp_path / "a.png": lambda: evolution(seen, {"a $seed$": fitness[0]}, "$run$"),
            tmp_path / "b.png": lambda: archive(cells, AXES, "run"),
            tmp_path / "c.png": lambda: archive(loose, (), "run"),
            tmp_path / "d.png": lambda: arms({"one": [fitness, fitness[::-1]]}, "run"),
            tmp_path / "e.png": lambda: by_generation(generations(settled), "$run$"),
        }
    )

    assert made.missing == []
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made.files)


@settings(max_examples=8)
@given(FITNESS)
def test_a_scale_shows_the_best_or_says_that_it_is_left_out(fitness: list[float]):
    best = max(fitness)
    scale = scale_of(fitness, best)

    assert scale.shows(best) or "left out" in scale.note(fitness)
    assert all(math.isfinite(scale.at(value)) for value in fitness if scale.shows(value))


def test_marks_are_left_out_and_the_bulk_is_drawn():
    [plot] = evolution(course(events(*improving(*MARKED))), {}, "run").axes

    low, high = plot.get_ylim()
    assert -40 < low < -30
    assert -28.5 <= high < -27
    assert plot.get_title("right") == "4 of 7 left out: 1e+100 or more"
    assert chart(MARKED)["yAxis"]["name"] == "fitness (4 of 7 left out: 1e+100 or more)"


def test_fitness_that_is_large_throughout_has_a_unit():
    [plot] = evolution(course(events(*improving(-1.2e308, -1.1e308))), {}, "run").axes

    assert plot.get_ylabel() == "fitness (higher is better), in units of 1e+308"
    assert [round(y, 3) for _, y in plot.collections[0].get_offsets()] == [-1.2, -1.1]
    data = charts.curves({"r": [Improvement(1, 1.0, -1.2e308, "a", "tune", "")]}, {"r": 4})
    assert data["series"][0]["data"][0] == [1, pytest.approx(-1.2)]


@given(FITNESS, FITNESS)
def test_any_ends_are_compared(ours: list[float], theirs: list[float]):
    found = superiority(ours, theirs)

    assert 0.0 <= found.low <= found.probability <= found.high <= 1.0


@given(FITNESS)
def test_a_generation_of_any_fitness_has_a_mean(fitness: list[float]):
    [row] = generations([proposal(n, fitness=value) for n, value in enumerate(fitness)])

    assert row.avg_score is not None
    assert min(fitness) <= row.avg_score <= max(fitness)
