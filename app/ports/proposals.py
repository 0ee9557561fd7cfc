"""Proposals: their leases, how many of a run are where, and how fast they pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.domain.operator import Direction, Draft
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.back_pressure import Flow
from app.domain.search.cohort import Cohort, ProposalId, State, TrialId
from app.domain.search.shares import InFlight


@dataclass(frozen=True, slots=True)
class TracedProposal:
    """What a trace says of a proposal.

    Attributes:
      planned_us: Microseconds since 1970 when it was planned, by the database's clock.
      outcome: The reason of a cut or the kind of a failure; "" without one.
    """

    id: ProposalId
    ordinal: int
    island: int
    operator: str
    planned_us: int
    state: State
    program: ProgramId | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unsettled proposals of a run.

    Attributes:
      generating: How many wait for their operator.
      evaluating: How many are under test.
      islands: How many each island has, seeds not counted; absent where none.
      seeding: How many of them are seeds.
      reserved: Proposals that are set aside for runs inside them.
      planned: How many wait for their operator, by island and label of the fleet that generates.
      testing: How many are under test, by island.
    """

    generating: int = 0
    evaluating: int = 0
    islands: Mapping[int, int] = field(default_factory=dict)
    seeding: int = 0
    reserved: int = 0
    planned: Mapping[tuple[int, str], int] = field(default_factory=dict)
    testing: Mapping[int, int] = field(default_factory=dict)

    @property
    def unspent(self) -> int:
        """Proposals that the budget counts and that are not settled, or may be given back."""
        return self.unsettled + self.reserved

    @property
    def unsettled(self) -> int:
        """Proposals of the budget that are not settled."""
        return self.generating + self.evaluating - self.seeding


@dataclass(frozen=True, slots=True)
class LeasedProposals:
    """Proposals this process has leased: one, or those whose children one conversation makes.

    Attributes:
      cohort: Their cohort, with these members only and without trials.
      size: How many members the whole cohort has.
    """

    cohort: Cohort
    size: int

    @property
    def id(self) -> ProposalId:
        """The proposal that has the lease: the first."""
        return self.cohort.members[0].id


class Proposals(Protocol):
    """Proposals: their leases, how many of a run are where, and how fast they pass."""

    def draw(self, proposal: ProposalId, draft: Draft) -> None:
        """Records the parents of a proposal that this transaction has locked."""
        ...

    def unreserve(self, proposal: ProposalId) -> bool:
        """Makes the slice of a proposal's run inside available again; False if it was before."""
        ...

    def direct(self, directions: Mapping[ProposalId, Direction]) -> set[ProposalId]:
        """Records the directions of proposals that this transaction has locked.

        Returns:
          The proposals that had none; every other one keeps its own.
        """
        ...

    def claim(
        self, proposals: Sequence[ProposalId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, LeasedProposals]]:
        """Leases planned proposals of running or paused runs without a lease.

        With the first proposal of a cohort that one conversation makes, all of them are leased.

        Raises:
          Exhausted: A proposal was attempted `attempts` times and never finished.
        """
        ...

    def backlog(self, run: int) -> Backlog:
        """Returns how many proposals are not settled."""
        ...

    def in_flight(self) -> list[InFlight]:
        """Returns the running runs with their unsettled proposals, by fleet, oldest run first."""
        ...

    def waiting(self, run: int) -> dict[str, int]:
        """Returns how many proposals wait for their operator, by operator."""
        ...

    def flow(self, run: int, settled: int) -> Flow | None:
        """Returns how fast the newest `settled` proposals passed; None before two have settled."""
        ...

    def longest_wait(self, run: int) -> float:
        """Returns the seconds since the oldest proposal without a child was planned; 0.0: none."""
        ...

    def longest_test(self, run: int) -> float:
        """Returns the seconds since the oldest proposal under test was begun; 0.0 without one."""
        ...

    def mean_seconds(self, run: int, over: int = 32) -> float:
        """Returns the mean from planning to settling of the newest proposals; 0.0 before any."""
        ...

    def traced(
        self, proposals: Sequence[ProposalId], trials: Sequence[TrialId] = ()
    ) -> list[TracedProposal]:
        """Returns these proposals and those whose children are tried in these trials, by id."""
        ...
