"""Runs inside a run: a proposal whose child another search finds, with a slice of the budget.

The slice is set aside when the proposal is planned, so that the caps of the run around hold at any
time, and what the run inside has not spent returns to it once that run has ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.search.budget import NOTHING, Budget, Price
from app.domain.search.strategy import Recipe

LEAST = 2
"""Proposals of the budget that a proposal with a run inside takes at least: itself and one more."""


@dataclass(frozen=True, slots=True)
class NestedRules:
    """What runs inside a run are created from.

    Attributes:
      strategy: The name of their recipe.
      recipe: With its parameters; None where it is not installed here, and nothing of what follows
        from it is known.
      proposals: Most proposals of each.
      settings: Their settings as they are stored.
      operators: Name to weight.
      islands: Islands of each.
      gridded: Whether their recipe has a feature grid.
    """

    strategy: str
    recipe: Recipe | None
    proposals: int
    settings: Mapping[str, Any]
    operators: Mapping[str, float]
    islands: int
    gridded: bool


def slices(left: int, members: int, each: int) -> tuple[int, ...]:
    """Returns the proposals that are set aside for each member of a cohort beside itself.

    Members that the budget has no slice for are left out; what it has is divided evenly.  A rest of
    one proposal, which could hold no run, is added to the last slice.

    Args:
      left: Proposals that the budget still has; >= 0.
      members: Members that the cohort would have.
      each: Most proposals of a run inside; >= 1.

    Returns:
      One number a member, 1 or more; () where the budget holds no run.
    """
    members = min(members, left // LEAST)
    if members < 1:
        return ()
    share, more = divmod(min(left - members, members * each), members)
    cut = [share + (place < more) for place in range(members)]
    if left - members - sum(cut) == 1:
        cut[-1] += 1
    return tuple(cut)


def slice_of(budget: Budget, proposals: int) -> Budget:
    """Returns the budget of a run with so many proposals inside a run: the same share of each cap.

    Time is not divided: it passes for all runs inside at once, and the run around ends them.
    """
    share = proposals / budget.proposals
    return Budget(
        proposals,
        tokens=None if budget.tokens is None else max(1, int(budget.tokens * share)),
        cost_usd=None if budget.cost_usd is None else budget.cost_usd * share,
    )


def most_spent(budget: Budget, reserved: int) -> Price:
    """Returns the most that runs inside with so many proposals together may spend on models."""
    if not reserved:
        return NOTHING
    each = slice_of(budget, reserved)
    return Price(each.tokens or 0, each.cost_usd or 0.0)
