"""The null arm: every child is bred from one of the run's initial programs, never from a child.

What a search adds to its operators is its lead over this recipe with the same operators.  `tune`
still reads the measured children of its parent, as its optimiser does in any recipe.
"""

from dataclasses import dataclass
from random import Random

from app.domain.search.archive import CellKey, Entrant, IslandView, best
from app.domain.search.promotion import cascade
from app.domain.search.strategy import Lineage, RecipeInputs, Strategy


def by_origin(entrant: Entrant) -> CellKey:
    """The niche of the null arm: a cell for each initial program, and one for the best child."""
    return ("child",) if entrant.generation else (entrant.program,)


def initial_program(island: IslandView, rng: Random) -> Lineage:
    """Draws one of the initial programs, each being equally likely; no inspirations.

    Of two distinct cells at most one is that of the children.
    """
    return Lineage(tuple(e for e in island.uniform(2, rng) if not e.generation)[:1])


@dataclass(frozen=True, slots=True)
class RandomSearch:
    """The recipe; it has no parameters."""

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        return Strategy(
            niche=by_origin,
            occupancy=best(1),
            selection=initial_program,
            promotion=cascade(inputs.stages, inputs.thresholds, inputs.cases),
            gridded=False,
        )
