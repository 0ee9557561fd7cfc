"""Speculation: children of the fittest program race; the first that is better takes its place.

The others are withdrawn, whether they wait, are asked for, or are measured.

Source: the pattern Speculate of BranchContext.  Departures: docs/patterns.md.
"""

from dataclasses import dataclass

from app.domain.search.promotion import cascade, first_better
from app.domain.search.recipes.cascaded import from_champion
from app.domain.search.strategy import RecipeInputs, Strategy, at_least, fixed


@dataclass(frozen=True, slots=True)
class SpeculateRecipe:
    """The recipe.

    Attributes:
      racers: Children of a cohort.
      deadline_seconds: Seconds until the deadline of each cohort.

    Raises:
      ValueError: A parameter is out of range.
    """

    racers: int = 4
    deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        at_least(1, racers=self.racers, deadline_seconds=self.deadline_seconds)

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        climb = cascade(inputs.stages, inputs.thresholds, inputs.cases)
        promotion = first_better(climb, inputs.stages)
        return from_champion(fixed(self.racers), promotion, self.deadline_seconds)
