"""Refining: which children the refiner model writes, and which the generator.

The generator serves breadth.  The refiner writes children where the generator is least likely to
improve: of parents at the top of their island, and of parents whose newest children were no better.
"""

from dataclasses import dataclass, replace

from app.domain.operator import Brief, Draft, Prompt, Role


@dataclass(frozen=True, slots=True)
class Refining:
    """When the refiner writes a child.

    Attributes:
      share: Probability that the refiner writes an eligible child; 0.0 to 1.0.
      top: A child is eligible if its parent is among the `top` fittest programs of its island, as
        far as the brief contains them.
      stalled: A child is also eligible if the `stalled` newest children of its parent were no
        better; 0 for never.
    """

    share: float = 0.0
    top: int = 0
    stalled: int = 0


def scheduled(brief: Brief, rules: Refining) -> Brief:
    """Returns the brief with the role of the refiner in the drafts that it writes."""
    if not rules.share:
        return brief
    drafts = tuple(
        replace(draft, role=Role.REFINER) if _drawn(brief, draft, rules) else draft
        for draft in brief.drafts
    )
    return replace(brief, drafts=drafts)


def assigned(brief: Brief, prompts: list[Prompt]) -> list[Prompt]:
    """Returns the prompts with the roles of their drafts, except prompts to other models."""
    roles = {draft.ordinal: draft.role for draft in brief.drafts}
    if all(role is Role.GENERATOR for role in roles.values()):
        return prompts
    return [
        replace(prompt, role=roles.get(prompt.sample, prompt.role))
        if prompt.role is Role.GENERATOR
        else prompt
        for prompt in prompts
    ]


def _drawn(brief: Brief, draft: Draft, rules: Refining) -> bool:
    if not (_at_the_top(brief, draft, rules.top) or _stalled(brief, draft, rules.stalled)):
        return False
    return brief.rng(f"refiner/{draft.ordinal}").random() < rules.share


def _at_the_top(brief: Brief, draft: Draft, top: int) -> bool:
    """Returns whether fewer than `top` of the other programs in the brief are fitter."""
    own = brief.parent(draft).fitness
    if own is None:
        return False
    programs = (*draft.parents[1:], *draft.inspirations)
    others = (brief.known[program].fitness for program in programs)
    return sum(1 for fitness in others if fitness is not None and fitness > own) < top


def _stalled(brief: Brief, draft: Draft, stalled: int) -> bool:
    """Returns whether the `stalled` newest children of the parent are known, and none is better."""
    parent = draft.parents[0]
    if not stalled or parent != brief.drafts[0].parents[0] or len(brief.siblings) < stalled:
        return False
    own = brief.known[parent].fitness
    newest = brief.siblings[:stalled]
    return own is not None and all(
        child.fitness is not None and child.fitness <= own for child in newest
    )
