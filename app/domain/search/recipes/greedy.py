"""Greedy hill climbing: the best program of an island is the parent of each of its children.

Source: the (1+1) evolutionary algorithm, with as many children in flight as the run has.
"""

from dataclasses import dataclass
from random import Random

from app.domain.search.archive import IslandView, best, everyone_together
from app.domain.search.promotion import cascade
from app.domain.search.strategy import Lineage, RecipeInputs, Strategy


def fittest(island: IslandView, rng: Random) -> Lineage:  # noqa: ARG001  the signature of a Selection
    """Takes the fittest program; no inspirations."""
    return Lineage(island.best(1))


@dataclass(frozen=True, slots=True)
class Greedy:
    """The recipe; it has no parameters.  Islands climb apart: there is no migration."""

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        return Strategy(
            niche=everyone_together,
            occupancy=best(1),
            selection=fittest,
            promotion=cascade(inputs.stages, inputs.thresholds, inputs.cases),
            gridded=False,
        )
