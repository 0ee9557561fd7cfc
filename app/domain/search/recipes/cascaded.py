"""Cascaded attempts: few children of the fittest program at first, more while none is better.

Of a cohort, fewer are measured at each stage.  `best_of_n` is this recipe with cohorts of one size.

Source: the pattern Cascaded of BranchContext.  Departures: docs/patterns.md.
"""

import math
from dataclasses import dataclass

from app.domain.search.archive import IslandView, best, everyone_together
from app.domain.search.promotion import Promotion, best_of, narrowing
from app.domain.search.recipes.greedy import fittest
from app.domain.search.strategy import Barrier, RecipeInputs, Size, Strategy, at_least


def widening(sizes: tuple[int, ...]) -> Size:
    """Returns the rule of cohorts that grow with each one in a row that admitted nobody."""

    def size(island: IslandView) -> int:
        return sizes[min(island.barren, len(sizes) - 1)]

    return size


def from_champion(size: Size, promotion: Promotion, deadline_seconds: float | None) -> Strategy:
    """Returns the search whose cohorts are children of the fittest program of their island."""
    return Strategy(
        niche=everyone_together,
        occupancy=best(1),
        selection=fittest,
        promotion=promotion,
        size=size,
        barrier=Barrier.ISLAND,
        gridded=False,
        deadline_seconds=deadline_seconds,
    )


@dataclass(frozen=True, slots=True)
class CascadedRecipe:
    """The recipe.

    Attributes:
      fan_out: Children of a cohort: the first number after a cohort with a better program, the next
        one after each cohort without, at the end the last one.
      share: Of the programs of a cohort that are ready for the next stage, those that are measured
        there, rounded up.
      deadline_seconds: Seconds until the deadline of each cohort.

    Raises:
      ValueError: A parameter is out of range.
    """

    fan_out: tuple[int, ...] = (1, 2, 4)
    share: float = 0.5
    deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        if not self.fan_out or min(self.fan_out) < 1:
            raise ValueError(f"fan_out must be numbers of at least 1, not {list(self.fan_out)}")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {self.share:g}")
        at_least(1, deadline_seconds=self.deadline_seconds)

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        stages = inputs.stages
        rooms = {
            index: lambda ready: math.ceil(self.share * ready) for index in range(1, len(stages))
        }
        climb = narrowing(rooms, stages, inputs.thresholds, inputs.cases)
        promotion = best_of(1, climb, stages, improving=True)
        return from_champion(widening(self.fan_out), promotion, self.deadline_seconds)
