"""Reflexion: one attempt after the other at the same program, each knowing what came of the last.

The prompt of an attempt shows the failures, and the scores, of those before it.  After some that
were no better, the next fittest program is tried.

Source: Shinn et al. 2023, "Reflexion: language agents with verbal reinforcement learning", and the
pattern of that name of BranchContext.  Departures: docs/patterns.md.
"""

from dataclasses import dataclass
from random import Random

from app.domain.search.archive import IslandView, best, everyone_together
from app.domain.search.promotion import best_of, cascade
from app.domain.search.strategy import (
    Barrier,
    Lineage,
    RecipeInputs,
    Selection,
    Strategy,
    at_least,
)


def in_turn(attempts: int, parents: int) -> Selection:
    """Takes the fittest program; after so many attempts without a gain, the next fittest."""

    def selection(island: IslandView, rng: Random) -> Lineage:  # noqa: ARG001  the signature
        elites = island.best(parents)
        return Lineage((elites[island.barren // attempts % len(elites)],))

    return selection


@dataclass(frozen=True, slots=True)
class ReflexionRecipe:
    """The recipe.

    Attributes:
      attempts: Attempts at a program until one is better; then the next fittest program has as
        many.
      parents: Fittest programs of an island that take turns.
      deadline_seconds: Seconds until the deadline of each attempt.

    Raises:
      ValueError: A parameter is out of range.
    """

    attempts: int = 3
    parents: int = 4
    deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        at_least(1, attempts=self.attempts, parents=self.parents)
        at_least(1, deadline_seconds=self.deadline_seconds)

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        climb = cascade(inputs.stages, inputs.thresholds, inputs.cases)
        return Strategy(
            niche=everyone_together,
            occupancy=best(self.parents),
            selection=in_turn(self.attempts, self.parents),
            promotion=best_of(1, climb, inputs.stages, improving=True),
            model_mix={"rewrite": 1.0},
            barrier=Barrier.ISLAND,
            gridded=False,
            deadline_seconds=self.deadline_seconds,
        )
