"""What the charts of a run show."""

import pytest

from app.dashboard.pages.charts import by_generation, curve, grid_map, metric_curve, outcomes
from app.dashboard.reads import ArchiveDocument, CellDocument
from app.domain.problem import Axis
from app.reports.course import (
    Contribution,
    Improvement,
    MeasuredProposal,
    MetricCourse,
    MetricPoint,
)
from app.reports.generations import generations
from app.reports.view import lowest_shown, range_shown
from tests.unit.reports.test_metrics import proposal

PROGRAM = "ab" * 32


def measured(settled: int, fitness: float) -> MeasuredProposal:
    return MeasuredProposal(settled, 1.0, fitness, PROGRAM, 0, "tune", True)


@pytest.mark.parametrize(
    ("values", "low"),
    [
        ([-147.5, -5.7, -4.9, -4.75], -6.5),
        ([-90.0, *(-5.0 + n / 10 for n in range(12))], -7.0),
        ([1.0, 2.0, 3.0], None),
        ([0.0, 1.0, 1.0, 1.0, 1.0], None),
        ([-1e9, 1.0], None),
    ],
)
def test_the_axis_begins_at_a_round_number_where_the_bulk_is(
    values: list[float], low: float | None
):
    assert lowest_shown(values, max(values)) == low


def test_baselines_of_equal_fitness_share_a_line_and_those_far_below_have_none():
    points = [measured(n, fitness) for n, fitness in enumerate((-147.5, -5.7, -4.9, -4.75))]
    best = Improvement(3, 1.0, -4.75, PROGRAM, "tune", "")
    baselines = {"initial": -4.9, "best fit": -4.9, "worst": -147.5}

    options = curve(points, [best], 4, baselines)

    assert options["yAxis"]["min"] == -6.5
    assert options["series"][0]["markLine"]["data"] == [
        {"yAxis": -4.9, "name": "initial, best fit"}
    ]


def test_a_bar_of_outcomes_is_named_after_its_first_proposal():
    options = outcomes([Contribution(4, 1, 1, 1, 1), Contribution(2, 0, 0, 0, 2)], 4)

    assert options["xAxis"]["data"] == ["1", "5"]
    assert [series["data"] for series in options["series"]] == [[1, 0], [1, 0], [1, 0], [1, 2]]


def test_a_metric_is_drawn_at_each_program_with_a_line_through_the_best():
    def point(settled: int, value: float, entered: bool = True) -> MetricPoint:
        return MetricPoint(settled, value, PROGRAM, entered)

    metric = MetricCourse(
        "latency", [point(0, 5.0), point(1, 3.0, entered=False), point(2, 4.0)], [point(0, 5.0)]
    )

    options = metric_curve(metric, 9, {"initial": 5.0})

    best, entered, refused = options["series"]
    assert best["data"] == [[0, 5.0], [9, 5.0]]
    assert best["markLine"]["data"] == [{"yAxis": 5.0, "name": "initial"}]
    assert [value for _, value, _ in entered["data"]] == [5.0, 4.0]
    assert [value for _, value, _ in refused["data"]] == [3.0]


LARGEST = 1.7976931348623157e308
BULK = [float(n) for n in range(20)]


@pytest.mark.parametrize(
    ("values", "always", "shown"),
    [
        (BULK, [], (None, None)),
        ([*BULK, 1e9], [3.0], (None, 19.0)),
        ([*BULK, -LARGEST, LARGEST], [], (0.0, 19.0)),
        ([*BULK, -LARGEST, LARGEST], [LARGEST], (0.0, None)),
        ([LARGEST] * 10 + [-LARGEST] * 10, [], (None, None)),
        ([1.0] * 20 + [1e9], [], (None, None)),
    ],
)
def test_values_of_a_metric_far_outside_the_bulk_lie_beyond_the_axis(
    values: list[float], always: list[float], shown: tuple[float | None, float | None]
):
    assert range_shown(values, always) == shown


def test_generations_are_drawn_with_their_means_and_counts():
    settled = [
        *(proposal(n, float(n), cohort=1) for n in range(6)),
        proposal(6, cohort=2),
        *(proposal(n, 2.0 * (n - 5), cohort=3) for n in (7, 8)),
        proposal(9, cohort=3),
    ]

    options = by_generation(generations(settled))

    assert {line["name"]: line["data"] for line in options["series"]} == {
        "best so far": [5.0, 5.0, 6.0],
        "mean of the 5 fittest": [3.0, None, 5.0],
        "mean": [2.5, None, 5.0],
        "with a fitness": [6, 0, 2],
        "without one": [0, 1, 1],
    }
    assert options["yAxis"][1]["min"] == 0
    above, below = options["xAxis"]
    assert above["data"] == below["data"] == ["0", "1", "2"]


@pytest.mark.parametrize("settled", [[], [proposal(0, cohort=1)]], ids=["none", "none measured"])
def test_generations_without_a_fitness_are_drawn_as_counts(settled):
    options = by_generation(generations(settled))

    assert [line["data"] for line in options["series"][:3]] == [[None] * len(settled)] * 3


def test_of_thousands_of_generations_some_are_drawn_and_the_axis_says_so():
    settled = [proposal(n, float(n), cohort=n) for n in range(2500)]

    options = by_generation(generations(settled))

    assert len(options["series"][0]["data"]) == 834
    assert options["xAxis"][1]["name"] == "generation, one of 3 drawn"


@pytest.mark.parametrize(
    ("fitness", "decimals"),
    [([2.63499997, 2.6349999751384496], 11), ([1.0, 1.0], 3), ([-30.0, 5.0], 3), ([], 3)],
)
def test_the_legend_of_colours_tells_the_ends_apart(fitness: list[float], decimals: int):
    cells = [CellDocument(0, [n], PROGRAM, value, 1, 0) for n, value in enumerate(fitness)]
    archive = ArchiveDocument([Axis("size", 4, 0.0, 4.0)], [len(cells)], cells)

    assert grid_map(archive, None, 0, None)["visualMap"]["precision"] == decimals
