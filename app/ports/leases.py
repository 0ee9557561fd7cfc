"""Leases of proposals whose children are generated, and of trials that are evaluated."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.search.cohort import CohortId, ProposalId, TrialId
from app.ports.trials import WaitingTrial


class Leases(Protocol):
    """Leases of proposals whose children are generated, and of trials that are evaluated."""

    def renew(
        self, proposals: Sequence[ProposalId], trials: Sequence[TrialId], lease_seconds: float
    ) -> None: ...

    def withdraw(self, cohorts: Sequence[CohortId] = ()) -> None:
        """Makes the holders of leases look, once this commits, which steps are to stop.

        Trials of these cohorts whose results are not needed any more lose their leases: without a
        member that is not settled, or with settled members only among their players.
        """
        ...

    def withdraw_trials(self, trials: Sequence[TrialId]) -> None:
        """Withdraws trials without an evaluation, and makes their holders look."""
        ...

    def announce(self) -> None:
        """Makes those look, once this commits, who wait for the ends of candidates."""
        ...

    def withdrawn(
        self, proposals: Sequence[ProposalId], trials: Sequence[TrialId]
    ) -> tuple[list[ProposalId], list[TrialId]]:
        """Returns those whose step is to stop: they are settled, or their run has ended."""
        ...

    def release(
        self,
        proposals: Sequence[ProposalId],
        trials: Sequence[TrialId],
        retry_seconds: float,
        *,
        counted: bool = False,
    ) -> None:
        """Gives leases back; redelivery is in `retry_seconds`.  The attempt may be counted."""
        ...

    def runs(self, proposals: Sequence[ProposalId], trials: Sequence[TrialId]) -> list[int]:
        """Returns the runs of proposals or trials, in order."""
        ...

    def overdue(
        self, run: int, redeliver_seconds: float, limit: int = 1000
    ) -> tuple[dict[ProposalId, str], list[WaitingTrial]]:
        """Returns unfinished work whose lease ran out; its messages count as sent now.

        Proposals have the label of their fleet.  Work of a fleet without a live worker is left out,
        so that its queue does not fill; it is due as soon as there is one.
        """
        ...

    def held(self, run: int) -> int:
        """Returns how many steps of a run are in progress: those whose lease has not run out."""
        ...

    def lapsed(self, run: int) -> int:
        """Returns how many unfinished steps of a run have a lease that has run out."""
        ...

    def repeated(self, run: int) -> int:
        """Returns how often steps of a run were begun again after an attempt without an end."""
        ...

    def forget_attempts(self, run: int, *, keep_leases: bool = False) -> None:
        """Starts counting attempts anew, and makes unfinished work due now, as `resume` does.

        Args:
          run: The run.
          keep_leases: Whether steps in progress keep theirs; otherwise no worker is alive.
        """
        ...


class Exhausted(Exception):
    """A step was attempted too often without an end; the run's machinery is at fault.

    Attributes:
      run: The run of the step.
      subject: The proposal or trial of the step.
    """

    def __init__(self, run: int, subject: int, attempts: int) -> None:
        super().__init__(
            f"started {attempts} times and never finished; the worker's log says what ended it. "
            f"`evoq resume` tries again"
        )
        self.run = run
        self.subject = subject
