"""Finite numbers: folds over any doubles whose results are finite too.

An evaluator may return every finite double, and many return the largest one for "no cost".  Sums,
differences and squares of such numbers overflow.  So every fold over fitness, scores, metrics and
features is one of these, or compares only.
"""

import math
import statistics
import sys
from collections.abc import Iterable, Sequence

LARGEST = sys.float_info.max
MARK = 1e100
"""No measurement is as large: evaluators return such a number where they have none."""


def mean(values: Iterable[float]) -> float:
    """Returns the mean of at least one value."""
    known = list(values)
    try:
        return statistics.fmean(known)
    except OverflowError:
        # `statistics.mean` is exact, and many times slower.
        return float(statistics.mean(known))


def difference(minuend: float, subtrahend: float) -> float:
    """Returns the difference; of one beyond the doubles, the largest double of its sign."""
    return min(max(minuend - subtrahend, -LARGEST), LARGEST)


def between(low: float, high: float, share: float) -> float:
    """Returns the number at a share of the way from one to another; 0 <= share <= 1."""
    found = low * (1.0 - share) + high * share
    return min(max(found, min(low, high)), max(low, high))


def position(value: float, low: float, high: float) -> float:
    """Returns which share of the way from `low` to `high` a value is at, clipped to 0 … 1.

    0.0 where `high` is not above `low`.
    """
    if high <= low:
        return 0.0
    clipped = min(max(value, low), high)
    if math.isinf(high - low):
        return (clipped / 2 - low / 2) / (high / 2 - low / 2)
    return (clipped - low) / (high - low)


def quantile(values: Iterable[float], share: float) -> float:
    """Returns the quantile of at least one value, interpolated between neighbours.

    It is the one that NumPy computes by default: 0 is the least value, 1 the greatest.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = min(math.floor(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return between(ordered[below], ordered[above], place - below)


def median(values: Iterable[float]) -> float:
    """Returns the median of at least one value."""
    return quantile(values, 0.5)


def scaled(values: Sequence[float]) -> list[float]:
    """Returns the values divided by one power of two, so that none is beyond 1 in size."""
    _, exponent = math.frexp(max(map(abs, values)))
    return [math.ldexp(value, -exponent) for value in values]


def unmarked(values: Iterable[float]) -> list[float]:
    """Returns the values in their order, without marks: numbers that stand for no measurement.

    Numbers from `MARK` on, of either sign, are marks if no more different ones are as large than
    are smaller; a quantity that is large throughout is a measurement.
    """
    known = list(values)
    smaller = [value for value in known if abs(value) < MARK]
    marks = {value for value in known if abs(value) >= MARK}
    return smaller if smaller and len(marks) <= len(set(smaller)) else known
