"""What of a run's figures is shown, in pages and in pictures alike: ranges of axes, grids."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Protocol, TypeVar

from app.domain.finite import MARK, unmarked
from app.domain.search.archive import Quality


class Placed(Protocol):
    """A program in a cell of a grid."""

    @property
    def cell(self) -> Sequence[int | float | str]: ...

    @property
    def quality(self) -> Quality: ...


_P = TypeVar("_P", bound=Placed)


def best_by_square(
    placed: Iterable[_P], across: int = 0, up: int | None = 1
) -> dict[tuple[int, int], _P]:
    """Returns the best program at each place of two axes, or of one, whatever the others are.

    Args:
      placed: On a grid; of several islands, the best of all counts.  Ties: the first one wins.
      across: Index of the axis that is the first number of a place.
      up: Index of the axis that is the second; None for 0.
    """
    best: dict[tuple[int, int], _P] = {}
    for each in placed:
        at = int(each.cell[across]), 0 if up is None else int(each.cell[up])
        if at not in best or each.quality > best[at].quality:
            best[at] = each
    return best


@dataclass(frozen=True, slots=True)
class Scale:
    """What an axis of fitness shows, in numbers that charts can draw.

    Differences of numbers near the largest float overflow in charts, so such numbers are shown in a
    unit; those that stand for no measurement are left out where others do not.

    Attributes:
      unit: What the numbers at the axis are multiples of: 1.0, or a power of ten.
      marks: Whether numbers from `MARK` on, of either sign, are shown.
      low: Where the axis begins, in units; None where it begins at the lowest value.
    """

    unit: float = 1.0
    marks: bool = True
    low: float | None = None

    def shows(self, value: float) -> bool:
        """Returns whether a value is drawn, be it below the view."""
        return self.marks or abs(value) < MARK

    def at(self, value: float) -> float:
        """Returns a value that is drawn in units."""
        return value / self.unit

    def named(self, name: str) -> str:
        """Returns the name of the axis, with the unit where it is not 1."""
        return name if self.unit == 1.0 else f"{name}, in units of {self.unit:g}"

    def note(self, values: Sequence[float]) -> str:
        """Returns how many of some values are not in the view; "" where all are."""
        drawn = [value for value in values if self.shows(value)]
        below = 0 if self.low is None else sum(self.at(value) < self.low for value in drawn)
        left_out = len(values) - len(drawn)
        parts = [f"{below} of {len(values)} below the view"] if below else []
        parts += [f"{left_out} of {len(values)} left out: {MARK:g} or more"] if left_out else []
        return "; ".join(parts)


def scale_of(values: Sequence[float], best: float | None = None) -> Scale:
    """Returns the scale that shows the bulk of some values.

    Args:
      values: May be empty.
      best: The highest fitness, where it need not be among them.
    """
    known = [*values, *(() if best is None else (best,))]
    drawn = unmarked(known)
    marks = len(drawn) == len(known)
    largest = max(map(abs, drawn), default=0.0)
    unit = 10.0 ** math.floor(math.log10(largest)) if largest >= MARK else 1.0
    scale = Scale(unit, marks)
    shown = [scale.at(value) for value in values if scale.shows(value)]
    if best is not None:
        best = scale.at(best) if scale.shows(best) else max(shown, default=None)
    return Scale(unit, marks, lowest_shown(shown, best))


def lowest_shown(values: Sequence[float], best: float | None) -> float | None:
    """Returns where the axis of fitness begins; None where it begins at the lowest value.

    A few programs that are far worse than the rest would press all others into one line.
    """
    if len(values) < 3 or best is None:
        return None
    quarter, middle, _ = quantiles(values, n=4)
    usual = middle if len(values) < 8 else quarter
    if usual >= best:
        return None
    low = usual - 2 * (best - usual)
    step = 10.0 ** math.floor(math.log10(best - low)) / 2
    # Rounding gives the axis a number with few digits.
    low = float(f"{math.floor(low / step) * step:.10g}")
    return low if min(values) < low else None


_SPREADS = 10
"""Distances between the quartiles within which a value belongs to the bulk."""


def range_shown(
    values: Sequence[float], always: Sequence[float]
) -> tuple[float | None, float | None]:
    """Returns where the axis of a metric begins and ends; None where the outermost value is.

    A few values far outside the bulk, on either side, would press all others into one line.

    Args:
      values: What is drawn.
      always: Values that are shown in any case.
    """
    if len(values) < 8:
        return None, None
    ordered = sorted(values)
    low, high = ordered[len(values) // 4], ordered[-1 - len(values) // 4]
    if low == high:
        return None, None
    # A hundredth of each number, because the largest floats have no sum.
    room = _SPREADS * (high / 100 - low / 100)
    inside = [one for one in values if low / 100 - room <= one / 100 <= high / 100 + room]
    inside += always
    return (
        min(inside) if ordered[0] < min(inside) else None,
        max(inside) if ordered[-1] > max(inside) else None,
    )
