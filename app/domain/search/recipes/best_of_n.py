"""Best of n: of the children of the fittest program, the best one takes its place.

`cascaded` with cohorts of one size, all of which are measured in full.  Without commit the scores
of the children are what a run is for, and every child is one of the initial program's.

Source: the pattern BestOfN of BranchContext.  Departures: docs/patterns.md.
"""

from dataclasses import dataclass

from app.domain.search.promotion import best_of, cascade
from app.domain.search.recipes.cascaded import CascadedRecipe, from_champion
from app.domain.search.strategy import RecipeInputs, Strategy, at_least, fixed


@dataclass(frozen=True, slots=True)
class BestOfNRecipe:
    """The recipe.

    Attributes:
      n: Children of a cohort.
      commit: Whether the best one is admitted if it is better than its parent. Otherwise none is,
        and the run is a data set of children of the fittest initial program.
      deadline_seconds: Seconds until the deadline of each cohort.

    Raises:
      ValueError: A parameter is out of range.
    """

    n: int = 8
    commit: bool = True
    deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        at_least(1, n=self.n, deadline_seconds=self.deadline_seconds)

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        if self.commit:
            return CascadedRecipe((self.n,), 1.0, self.deadline_seconds).strategy(inputs)
        climb = cascade(inputs.stages, inputs.thresholds, inputs.cases)
        return from_champion(fixed(self.n), best_of(0, climb, inputs.stages), self.deadline_seconds)
