"""Bands of the arms of a comparison."""

import numpy as np
import pytest

from app.dashboard.pages.charts import bands
from app.reports.bands import MOST_POINTS, ArmBand, Steps, band


def curve(steps: Steps, budget: int) -> list[float]:
    """Returns the best so far after 0, 1, … proposals."""
    found = dict(steps)
    values = [steps[0][1]]
    for settled in range(1, budget + 1):
        values.append(found.get(settled, values[-1]))
    return values


def test_a_band_has_the_quartiles_of_the_curves():
    runs = [[(0, 1.0), (4, 3.0)], [(0, 2.0)], [(0, 0.0), (2, 5.0), (6, 9.0)], [(0, 1.5), (7, 4.0)]]
    curves = np.asarray([curve(steps, 10) for steps in runs])

    points = band(runs, 10)

    assert [point.settled for point in points] == [0, 2, 4, 6, 7, 10]
    for point in points:
        quartiles = np.percentile(curves[:, point.settled], (25, 50, 75))
        assert (point.q25, point.median, point.q75) == pytest.approx(tuple(quartiles))


def test_the_band_of_one_run_is_its_curve():
    assert {(p.q25, p.median, p.q75) for p in band([[(0, 1.0), (3, 2.0)]], 5)} == {
        (1.0, 1.0, 1.0),
        (2.0, 2.0, 2.0),
    }


def test_a_band_begins_where_every_run_has_a_fitness_and_is_bounded():
    late = [(30, 1.0)]
    busy = [(n, float(n)) for n in range(5 * MOST_POINTS)]

    points = band([late, busy], 5 * MOST_POINTS)

    assert points[0].settled == 30
    assert points[-1].settled == 5 * MOST_POINTS
    assert len(points) <= MOST_POINTS + 1


def test_a_chart_stacks_each_band_on_its_lower_quartile():
    points = band([[(0, -5.0)], [(0, -1.0), (2, 0.0)], [(0, -3.0)]], 4)

    options = bands({"a": ArmBand(3, points), "none": ArmBand(0, [])})

    low, width, middle = options["series"]
    assert options["legend"]["data"] == ["a"]
    assert low["stack"] == width["stack"] == "a"
    assert low["data"][0][1] + width["data"][0][1] == points[0].q75
    assert middle["data"] == [[point.settled, point.median] for point in points]
