"""Trials and their evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.evaluation import Evaluation, Trial
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, TrialId
from app.domain.search.fleets import FleetRules
from app.domain.search.shares import Claimant


@dataclass(frozen=True, slots=True)
class WaitingTrial:
    """A trial without an evaluation, for a message.

    Attributes:
      fleet: Label of the fleet that it is for.
    """

    id: TrialId
    cohort: CohortId
    stage: str
    fleet: str = ""


@dataclass(frozen=True, slots=True)
class TrialQueue:
    """The trials of a run that wait for a sandbox of one fleet.

    Attributes:
      fleet: Its label.
      claimant: What the run's share follows from.
      batch: Most trials that one place takes at a time.
      waiting: The oldest, in order of id.
      named: Those that the reader named.
      places: Of all workers of the fleet together, whichever run; see `Capacity.sandbox`.
    """

    claimant: Claimant
    batch: int
    waiting: tuple[TrialId, ...]
    named: tuple[TrialId, ...]
    places: int | None
    fleet: str = ""


@dataclass(frozen=True, slots=True)
class LeasedTrial:
    """A trial this process has leased, with the programs it plays.

    Attributes:
      attempt: Number of this attempt, from 1.
    """

    id: TrialId
    cohort: CohortId
    trial: Trial
    programs: Mapping[ProgramId, Program]
    attempt: int


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The evaluation of a trial."""

    id: TrialId
    cohort: CohortId
    evaluation: Evaluation


class Trials(Protocol):
    """Trials and their evaluations."""

    def add(
        self,
        trials: Sequence[tuple[Cohort, Trial]],
        *,
        redeliver_seconds: float,
        fleets: FleetRules,
    ) -> list[WaitingTrial]:
        """Adds the trials that their cohorts do not have yet, for these fleets; returns those."""
        ...

    def queues(self, named: Sequence[TrialId]) -> list[TrialQueue]:
        """Returns the trials that wait for a sandbox, by running or paused run and by fleet.

        Oldest run first.

        Where a run limits its trials at work, no other transaction leases any until this one ends.
        """
        ...

    def claim(
        self, trials: Sequence[TrialId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, LeasedTrial]]:
        """Leases those trials of runs that have neither an evaluation nor a lease.

        A game is leased once more after its last attempt, to be recorded as a draw or void.

        Raises:
          Exhausted: A trial of one program was attempted `attempts` times and never finished.
        """
        ...

    def record(self, results: Sequence[TrialResult]) -> tuple[Run, list[Cohort]] | None:
        """Records evaluations of one run; a trial that has an evaluation keeps it.

        Returns:
          The run and the cohorts of newly evaluated trials with all their evaluations, locked.
          None if every trial had one, or the run has ended.
        """
        ...

    def of_operator(self, run: int, operator: str) -> dict[Trial, TrialId]:
        """Returns the trials of a run's cohorts of an operator that were not withdrawn."""
        ...

    def unfinished(self, run: int) -> bool:
        """Returns whether a trial of a run has neither a result nor been withdrawn."""
        ...

    def results(self, trials: Sequence[TrialId]) -> dict[TrialId, Evaluation]:
        """Returns the evaluations of those trials that have one."""
        ...
