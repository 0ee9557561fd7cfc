"""Cohorts and their proposals, from planning to settling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.evaluation import Failure
from app.domain.operator import Draft, Point
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, CutReason, ProposalId, State

VALIDATE = "validate"
"""The operator of a cohort without members, whose trials measure programs on validation data."""
BRANCH = "branch"
"""The operator of a cohort without members, whose trials are the candidates of a pattern."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A cohort to be added: where, by which operator, under which ordinals.

    Attributes:
      drafts: One per ordinal when the parents are already known (seeds), else ().
      seeding: Whether the proposals are the run's seeds.
      together: Whether one conversation makes the children of all.
      reserved: Proposals that are set aside for a run inside each; () where there is none.
      fleet: Label of the fleet that generates it; "" for workers without a label.
    """

    island: int
    operator: str
    ordinals: tuple[int, ...]
    drafts: tuple[Draft, ...] = ()
    seeding: bool = False
    together: bool = False
    reserved: tuple[int, ...] = ()
    fleet: str = ""

    @property
    def proposals(self) -> int:
        """Proposals of the budget that it takes."""
        return len(self.ordinals) + sum(self.reserved)


@dataclass(frozen=True, slots=True)
class MemberResult:
    """The new state of one member: it enters testing with a program, or is settled.

    Attributes:
      stages_left: How many stages an admitted program was not measured at.
      point: See `Offspring`; one that is stored already stays.
      fleet: Label of the fleet that tests it; None where it is not to be tested.
    """

    proposal: ProposalId
    state: State
    program: ProgramId | None = None
    changes: str = ""
    failure: Failure | None = None
    cut: CutReason | None = None
    fitness: float | None = None
    verified: bool = False
    stages_left: int = 0
    point: Point | None = None
    fleet: str | None = None


class Cohorts(Protocol):
    """Cohorts and their proposals, from planning to settling."""

    def add(
        self, run: int, plans: Sequence[Plan], *, redeliver_seconds: float
    ) -> dict[ProposalId, str]:
        """Adds cohorts and counts them against the budget; their messages count as sent now.

        Returns:
          The proposals to enqueue, in order, with the labels of their fleets: all, or the first of
          a cohort that one conversation makes.
        """
        ...

    def add_without_members(self, run: int, operator: str) -> Cohort:
        """Adds a cohort whose trials are those of no proposal."""
        ...

    def lock(self, cohort: CohortId) -> tuple[Run, Cohort]:
        """Returns a cohort and its run, locking the cohort until the transaction ends."""
        ...

    def lock_planned(self, proposals: Sequence[ProposalId]) -> tuple[Run, set[ProposalId]]:
        """Locks the cohorts of proposals of one run until the transaction ends.

        Returns:
          The run, and the proposals that have no child yet; none if the run has ended.
        """
        ...

    def contents(self, cohorts: Sequence[Cohort]) -> list[Cohort]:
        """Returns cohorts that this transaction has locked with all their members and trials."""
        ...

    def enter(self, cohorts: Sequence[Cohort], results: Sequence[MemberResult]) -> None:
        """Records the new state of the cohorts' members: tested, cut, failed or admitted."""
        ...

    def unsettled(self, run: int) -> list[CohortId]:
        """Returns the cohorts with members that are not settled, in order of id."""
        ...

    def late(self, run: int, seconds: float) -> list[CohortId]:
        """Returns those of them whose first member was begun longer ago, in order of id.

        By the ledger's clock; the cohort of the seeds is never late.
        """
        ...
