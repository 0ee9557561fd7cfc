"""Places points in the unit square; a ShinkaEvolve task."""

import math


# EVOLVE-BLOCK-START
def place(count):
    """Returns `count` points (x, y), each coordinate from 0 to 1."""
    columns = 4
    margin = 0.1
    shift = 0.0
    step = (1.0 - 2.0 * margin) / (columns - 1)
    points = []
    for number in range(count):
        row, column = divmod(number, columns)
        x = margin + step * column + shift * (row % 2)
        y = margin + step * row
        points.append((min(1.0, max(0.0, x)), min(1.0, max(0.0, y))))
    return points


# EVOLVE-BLOCK-END


def run_experiment(count):
    """Returns the points, which `evaluate.py` judges."""
    return [(float(x), float(y)) for x, y in place(count) if math.isfinite(x + y)]
