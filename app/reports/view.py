"""What of a run's figures is shown, in pages and in pictures alike: ranges of axes, grids."""

import math
from collections.abc import Iterable, Sequence
from statistics import quantiles
from typing import Protocol, TypeVar

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
    low = float(f"{math.floor(low / step) * step:.10g}")  # a number that is short on an axis
    return low if min(values) < low else None
