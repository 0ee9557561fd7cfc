"""Refining: whose children the strong model writes, and whose the cheap one.

The generator is for breadth.  The refiner is asked where more of the same is least likely to help:
for parents at the top of their island, and for parents whose newest children were no better.
"""

from dataclasses import dataclass, replace

from app.domain.operator import Brief, Draft, Prompt, Role


@dataclass(frozen=True, slots=True)
class Refining:
    """When the refiner is asked.

    Attributes:
      share: Of the children that are due, how many it writes; 0.0 to 1.0.
      top: A child is due whose parent is among so many fittest of its island; as far as the brief
        shows them.
      stalled: It is due, too, when its parent's so many newest children were no better; 0: never.
    """

    share: float = 0.0
    top: int = 0
    stalled: int = 0


def scheduled(brief: Brief, rules: Refining) -> Brief:
    """Returns the brief with the drafts that the refiner shall write said to be its own."""
    if not rules.share:
        return brief
    drafts = tuple(
        replace(draft, role=Role.REFINER) if _drawn(brief, draft, rules) else draft
        for draft in brief.drafts
    )
    return replace(brief, drafts=drafts)


def assigned(brief: Brief, prompts: list[Prompt]) -> list[Prompt]:
    """Returns the prompts that ask the generator in the roles of the drafts they are for."""
    roles = {draft.ordinal: draft.role for draft in brief.drafts}
    if all(role is Role.GENERATOR for role in roles.values()):
        return prompts
    return [
        replace(one, role=roles.get(one.sample, one.role)) if one.role is Role.GENERATOR else one
        for one in prompts
    ]


def _drawn(brief: Brief, draft: Draft, rules: Refining) -> bool:
    if not (_at_the_top(brief, draft, rules.top) or _stalled(brief, draft, rules.stalled)):
        return False
    return brief.rng(f"refiner/{draft.ordinal}").random() < rules.share


def _at_the_top(brief: Brief, draft: Draft, top: int) -> bool:
    """Says whether fewer than `top` of the programs shown beside the parent are fitter."""
    own = brief.known[draft.parents[0]].fitness
    if own is None:
        return False
    others = (brief.known[one].fitness for one in (*draft.parents[1:], *draft.inspirations))
    return sum(1 for fitness in others if fitness is not None and fitness > own) < top


def _stalled(brief: Brief, draft: Draft, stalled: int) -> bool:
    """Says whether so many newest children of the parent are known, and none is better."""
    parent = draft.parents[0]
    if not stalled or parent != brief.drafts[0].parents[0] or len(brief.siblings) < stalled:
        return False
    own = brief.known[parent].fitness
    newest = brief.siblings[:stalled]
    return own is not None and all(one.fitness is not None and one.fitness <= own for one in newest)
