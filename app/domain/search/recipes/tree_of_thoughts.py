"""Tree of thoughts: a beam of bounded depth in which a child has to be better than its parent.

A tree ends at its depth, or at a level where every child was pruned.  Its fittest program is the
root of the next one.

Source: Yao et al. 2023, "Tree of Thoughts: deliberate problem solving with large language models",
breadth-first, and the pattern of that name of BranchContext.  Departures: docs/patterns.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from app.domain.search.archive import Elite, IslandView, best, by_generation
from app.domain.search.promotion import best_of, cascade
from app.domain.search.recipes.beam import Level, equally
from app.domain.search.strategy import (
    Barrier,
    Move,
    RecipeInputs,
    Strategy,
    Upkeep,
    at_least,
    fixed,
)


def lowest(depth: int) -> Level:
    """Returns what gives the lowest level of a tree; a tree has a cell for each of its levels."""

    def level(island: IslandView) -> tuple[Elite, ...]:
        reached = max(head.generation for head in island.heads(depth + 1))
        return island.cell((reached,)).occupants

    return level


def regrown(depth: int) -> Upkeep:
    """Roots a new tree at the fittest program of each island whose tree has ended."""

    def moves(islands: Sequence[IslandView], rng: Random) -> tuple[Move, ...]:  # noqa: ARG001
        ended = [
            island
            for island in islands
            if island.size > depth or (island.size > 1 and island.barren)
        ]
        return tuple(
            Move(island.best(1)[0], island.index, island.index, reset=True) for island in ended
        )

    return Upkeep(1, moves)


@dataclass(frozen=True, slots=True)
class TreeOfThoughtsRecipe:
    """The recipe.

    Attributes:
      breadth: Programs of a level that have children.
      thoughts: Children of each of them.
      depth: Levels of a tree below its root.
      deadline_seconds: Seconds until the deadline of each level.

    Raises:
      ValueError: A parameter is out of range.
    """

    breadth: int = 2
    thoughts: int = 4
    depth: int = 3
    deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        at_least(1, breadth=self.breadth, thoughts=self.thoughts, depth=self.depth)
        at_least(1, deadline_seconds=self.deadline_seconds)

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        climb = cascade(inputs.stages, inputs.thresholds, inputs.cases)
        phases = equally(lowest(self.depth), self.breadth, self.thoughts)
        return Strategy(
            niche=by_generation,
            occupancy=best(self.breadth),
            selection=phases[0].selection,
            phases=phases,
            promotion=best_of(self.breadth, climb, inputs.stages, improving=True),
            upkeep=regrown(self.depth),
            size=fixed(self.breadth * self.thoughts),
            barrier=Barrier.RUN,
            gridded=False,
            deadline_seconds=self.deadline_seconds,
        )
