"""Scores a search by the mean of the values it finds in several runs, each looked up again here.

The function is f(x, y) = sin x cos y + sin xy + (x² + y²) / 20 on [-5, 5]², with its minimum of
about -1.519 near (-1.704, 0.678).  Higher scores are better, so values are negated.
"""

import importlib.util
import math
import statistics

LOW, HIGH = -5.0, 5.0
LOWEST = -1.5187
"""Slightly above the minimum: whoever gets below has found its valley."""

RUNS = 100
"""The mean of so many has a standard error of 0.05 for the initial program."""
TOLERANCE = 1e-6


def objective(x, y):
    return math.sin(x) * math.cos(y) + math.sin(x * y) + (x * x + y * y) / 20.0


def value_of(answer):
    """Returns the function's value at the point of (x, y, value).

    Raises:
      ValueError: Not three finite numbers, a point outside the square, or another value there.
    """
    x, y, claimed = (float(number) for number in answer)
    if not all(math.isfinite(number) for number in (x, y, claimed)):
        raise ValueError(f"run_search returned a number that is not finite: {x}, {y}, {claimed}")
    if not (LOW <= x <= HIGH and LOW <= y <= HIGH):
        raise ValueError(f"({x}, {y}) is outside of [{LOW}, {HIGH}]²")
    value = objective(x, y)
    if abs(value - claimed) > TOLERANCE:
        raise ValueError(f"the value at ({x}, {y}) is {value}, not {claimed}")
    return value


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)

    values = [value_of(program.run_search()) for _ in range(RUNS)]
    return {
        "combined_score": -statistics.fmean(values),
        "best_value": min(values),
        "worst_value": max(values),
        "found_share": sum(value < LOWEST for value in values) / RUNS,
    }
