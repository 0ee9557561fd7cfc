"""Beam search: the best programs of a level have equally many children, the best of which go on.

Which parent they come from does not matter, nor whether they are better than it: the next level
is bred from this one alone.

Source: the pattern BeamSearch of BranchContext.  Departures: docs/patterns.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from app.domain.search.archive import Elite, IslandView, best, by_generation
from app.domain.search.promotion import best_of, cascade
from app.domain.search.strategy import (
    Barrier,
    Lineage,
    Phase,
    RecipeInputs,
    Selection,
    Strategy,
    at_least,
    fixed,
)

Level = Callable[[IslandView], tuple[Elite, ...]]
"""Returns the programs of an island whose children are the next level, best first."""


def deepest(island: IslandView) -> tuple[Elite, ...]:
    """Returns the deepest level: as levels follow each other, each has the cell of its number."""
    return island.cell((island.size - 1,)).occupants


def equally(level: Level, width: int, children: int) -> tuple[Phase, ...]:
    """Returns the phases of a cohort in which `width` programs of a level have equally many.

    Where a level has fewer programs, they take turns.
    """

    def of_rank(rank: int) -> Selection:
        def selection(island: IslandView, rng: Random) -> Lineage:  # noqa: ARG001  the signature
            programs = level(island)
            return Lineage((programs[rank % len(programs)],))

        return selection

    return tuple(Phase(children, of_rank(rank)) for rank in range(width))


@dataclass(frozen=True, slots=True)
class BeamRecipe:
    """The recipe.

    Attributes:
      width: Programs of a level that have children.
      children: Of each of them.
      deadline_seconds: Seconds until the deadline of each level.

    Raises:
      ValueError: A parameter is out of range.
    """

    width: int = 3
    children: int = 4
    deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        at_least(1, width=self.width, children=self.children)
        at_least(1, deadline_seconds=self.deadline_seconds)

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        climb = cascade(inputs.stages, inputs.thresholds, inputs.cases)
        phases = equally(deepest, self.width, self.children)
        return Strategy(
            niche=by_generation,
            occupancy=best(self.width),
            selection=phases[0].selection,
            phases=phases,
            promotion=best_of(self.width, climb, inputs.stages),
            size=fixed(self.width * self.children),
            barrier=Barrier.ISLAND,
            gridded=False,
            deadline_seconds=self.deadline_seconds,
        )
