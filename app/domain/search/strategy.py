"""A search method, as five pure decisions over the same nouns."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeAlias

from app.domain.evaluation import NO_CASES, Cases
from app.domain.operator import Draft, Role
from app.domain.problem import Axis
from app.domain.program import ProgramId
from app.domain.search.archive import Elite, IslandView, Niche, Occupancy
from app.domain.search.cohort import Cohort
from app.domain.search.promotion import Gates, Promotion


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the next child grows from: parents to edit, inspirations to read (best first)."""

    parents: tuple[Elite, ...]
    inspirations: tuple[Elite, ...] = ()

    def draft(self, ordinal: int, island: IslandView) -> Draft:
        return Draft(
            ordinal,
            island.index,
            island.epoch,
            1 + max(parent.generation for parent in self.parents),
            tuple(parent.program for parent in self.parents),
            tuple(other.program for other in self.inspirations),
        )


@dataclass(frozen=True, slots=True)
class Move:
    """Offer an elite to another island's cell, through that island's own occupancy rule.

    With `reset` the target is emptied first and enters its next epoch, which makes the elite its
    founder.
    """

    elite: Elite
    source: int
    target: int
    reset: bool = False


Selection: TypeAlias = Callable[[IslandView, Random], Lineage]


@dataclass(frozen=True, slots=True)
class Phase:
    """Proposals of a generation that have their parents from one selection.

    Attributes:
      proposals: How many a generation has.
      role: The role of the model that writes the children, if a model does.
    """

    proposals: int
    selection: Selection
    role: Role = Role.GENERATOR


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What happens between islands each time another `every` cohorts have been planned.

    Attributes:
      every: Cohorts between two rounds; 0 means never.
      moves: Takes every island, in index order.
    """

    every: int = 0
    moves: Callable[[Sequence[IslandView], Random], tuple[Move, ...]] = lambda islands, rng: ()  # noqa: ARG005

    def due(self, cohorts: int) -> bool:
        return self.every > 0 and cohorts > 0 and cohorts % self.every == 0


class Barrier(enum.StrEnum):
    """What an island waits for before its next cohort is planned."""

    NONE = "none"
    """An island has as many cohorts at once as back-pressure allows (steady state)."""
    ISLAND = "island"
    """An island waits until its own cohort has settled."""
    RUN = "run"
    """An island waits until the cohorts of all islands have settled (generations).

    Upkeep comes between two generations.
    """


class Ranking(enum.StrEnum):
    """What fitness of one program means beside that of another."""

    ABSOLUTE = "absolute"
    """Fitness is measured against the problem, and comparable for ever."""
    RELATIVE = "relative"
    """Fitness is measured against other programs, and comparable within a podium at one time."""


Placing: TypeAlias = Callable[[Cohort, ProgramId], float | None]

Size: TypeAlias = Callable[[IslandView], int]
"""Returns how many proposals an island's next cohort has; 0 where the island is finished.

It is called before the cohort is planned.  A run whose islands are all finished is finished.
"""


def single(island: IslandView) -> int:  # noqa: ARG001  the signature of a Size
    """The rule of steady-state searches: every cohort has one proposal."""
    return 1


def fixed(size: int) -> Size:
    """Returns the rule that every cohort has `size` proposals."""
    return lambda island: size  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a run spends its proposals.

    Attributes:
      niche: The cell that a program belongs to.
      occupancy: The occupants that a cell keeps.
      selection: The parents of a cohort's drafts.
      promotion: The members that are tested further, admitted, or cut.
      upkeep: What happens between islands.
      operator: Which conversation turns parents into children; None draws from the run's mix.
      model_mix: Operators and their weights where a run has a language model and its settings name
        no operators; empty for the mix that most recipes share.
      size: How many proposals are drawn from one snapshot and promoted together.
      barrier: What an island waits for before its next cohort is planned.
      refuse_clones: Whether a child opens no new cell if its scores and metrics all equal those
        of an elite of the island; a seed may.  A cell that has occupants decides by `occupancy` in
        any case.
      operators_aim: Whether an operator that chooses its parent may do so; see `Operator.aim`.
      rated: The stages whose scores make the fitness; () for every stage.
      placing: The fitness of a program that was measured at the rated stages, by its whole cohort;
        None for the mean of its scores.
      gridded: Whether the niche depends on the axes of the run.  A run without a grid has no axes,
        and never places its programs anew.
      ranking: Whether fitness of different times is comparable.  Where it is not, the best program
        of a run is the fittest that leads a cell now.
      plays: Whether programs are ranked by games between them, for which a problem has players.
      phases: What a generation consists of, where its proposals differ in their selection or in the
        role of their model; see `phase`.
      deadline_seconds: How long after its first step a cohort is judged with what was measured by
        then; None where it waits for all. Pauses of the run count.
    """

    niche: Niche
    occupancy: Occupancy
    selection: Selection
    promotion: Promotion
    upkeep: Upkeep = Upkeep()
    operator: str | None = None
    model_mix: Mapping[str, float] = field(default_factory=dict)
    size: Size = single
    barrier: Barrier = Barrier.NONE
    refuse_clones: bool = False
    operators_aim: bool = False
    rated: tuple[str, ...] = ()
    placing: Placing | None = None
    gridded: bool = True
    ranking: Ranking = Ranking.ABSOLUTE
    plays: bool = False
    phases: tuple[Phase, ...] = ()
    deadline_seconds: float | None = None

    def phase(self, turn: int) -> Phase:
        """Returns the phase of a proposal.

        Args:
          turn: Of consecutive numbers, as many as a generation has proposals, each phase has its
            own number, whichever is the first.
        """
        if not self.phases:
            return Phase(1, self.selection)
        place = turn % sum(phase.proposals for phase in self.phases)
        for phase in self.phases:
            if place < phase.proposals:
                return phase
            place -= phase.proposals
        raise AssertionError("a place is below the sum of the phases")


@dataclass(frozen=True, slots=True)
class RecipeInputs:
    """What a recipe depends on beside its parameters: what the run and its problem fix.

    Attributes:
      axes: Feature grid; every range is closed.
      thresholds: What a program needs to go on from each stage to the next.
      budget: Proposals of the whole run.
    """

    axes: tuple[Axis, ...]
    stages: tuple[str, ...]
    thresholds: Gates
    islands: int
    budget: int
    cases: Cases = NO_CASES


class Recipe(Protocol):
    """A published search method with its parameters.

    A recipe is a frozen dataclass whose fields are the parameters, with their defaults.  A field
    that has the name of a setting of `search` takes that setting; every other one is a setting of
    the section `strategy`.  Its `__post_init__` raises `ValueError` for a value out of range.
    """

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        ...


def at_least(least: float, **parameters: float | None) -> None:
    """Raises for the first parameter of a recipe that is below `least`; None is not compared.

    Raises:
      ValueError: One is, or is not a number.
    """
    for name, value in parameters.items():
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least:g}, not {value:g}")
