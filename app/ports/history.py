"""Folds over a run's proposals and trials.  Every result is bounded, or as long as requested."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.evaluation import Evaluation
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.archive import Quality
from app.domain.search.cohort import CohortId, ProposalId, State
from app.ports.records import (
    Birth,
    DetailCount,
    FunnelGroup,
    PlannedGame,
    Reused,
    Settled,
    Spent,
    Validation,
)


@dataclass(frozen=True, slots=True)
class LockWaits:
    """The sessions of the ledger that wait for a lock which another session holds.

    Attributes:
      sessions: Number of the sessions that wait now.
      longest_seconds: Time that the first of them has waited; 0 without any.
    """

    sessions: int
    longest_seconds: float


class History(Protocol):
    """Settled proposals of a run, for reports and for the search's own stopping rules."""

    def best(self, run: int) -> Settled | None:
        """Returns the admitted proposal of the best quality, seeds included; None if none.

        Ties: the older.  Of a run whose ranking is relative: the proposal of its champion, with the
        fitness that the champion has now.
        """
        ...

    def fittest(self, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
        """Returns the admitted proposals of the best quality with their evaluations, best first.

        Ties: the older.
        """
        ...

    def validations(self, run: int) -> list[Validation]:
        """Returns what was measured on validation data, in the order in which it was planned."""
        ...

    def best_quality(self, run: Run, besides: Sequence[ProposalId] = ()) -> Quality | None:
        """Returns the best quality among admitted proposals but `besides`; None if there is none.

        Of a run whose ranking is relative: the quality of its champion.
        """
        ...

    def start(self, run: int) -> float | None:
        """Returns the highest fitness of a seed; None before one was measured."""
        ...

    def settled(self, run: int, after: int = 0, limit: int = 1000) -> list[Settled]:
        """Returns settled proposals in order of settling, skipping the first `after`."""
        ...

    def of_program(self, run: int, program: ProgramId, limit: int) -> list[Settled]:
        """Returns the first settled proposals whose child is this program, oldest first."""
        ...

    def of_ordinal(self, run: int, ordinal: int) -> Settled | None:
        """Returns the settled proposal with this ordinal; None where there is none."""
        ...

    def lineage(self, run: int, program: ProgramId, limit: int) -> list[Settled]:
        """Returns the admission of a program, of its first parent, of that one's parent and so on.

        Newest first.  Of a program that was admitted more than once, the first time counts.
        """
        ...

    def ancestry(self, run: int, programs: Sequence[ProgramId]) -> list[Birth]:
        """Returns the first admissions of programs and of all their ancestors by first parents.

        Parents come before their children.  A program that was never admitted is left out.
        """
        ...

    def placed(self, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
        """Returns the first `limit` admitted proposals with their evaluations, in order of id."""
        ...

    def metrics(self, run: int, ordinals: Sequence[int]) -> dict[int, dict[str, float]]:
        """Returns what the evaluator reported of the programs of proposals, by their ordinals.

        A proposal of which nothing was measured is absent.
        """
        ...

    def evaluations(self, run: int, program: ProgramId) -> list[Evaluation]:
        """Returns a program's evaluations in the cohorts that it was a child of, in order."""
        ...

    def rated(self, run: int, program: ProgramId, island: int | None) -> list[Evaluation]:
        """Returns a player's scores and metrics in the games of one generation, in order.

        Args:
          run: The run.
          program: The player.
          island: Where its newest settled generation is wanted; None, and where it has played in
            none there, for the first one that it played in.
        """
        ...

    def games(self, run: int, cohort: CohortId, limit: int) -> list[PlannedGame]:
        """Returns the games of a cohort: those at work, those that wait, then the newest ended."""
        ...

    def states(self, run: int) -> dict[State, int]:
        """Returns how many proposals of the budget are in each state."""
        ...

    def admitted(self, run: int, limit: int) -> int:
        """Returns how many proposals of the budget were admitted, at most `limit`."""
        ...

    def entered(self, run: int) -> int:
        """Returns how many proposals of the budget a cell took when they were offered to it."""
        ...

    def failures(self, run: int) -> dict[str, int]:
        """Returns how many proposals of the budget failed, by failure kind."""
        ...

    def uptime_seconds(self) -> float:
        """Returns for how long the ledger's server has been running."""
        ...

    def lock_waits(self) -> LockWaits:
        """Returns who waits for a lock of the ledger at this moment."""
        ...

    def usual_failure(self, run: int, kind: str, among: int) -> DetailCount | None:
        """Returns the commonest first line among the newest failures of a kind; None without any.

        Args:
          run: The run.
          kind: The failure kind.
          among: How many failures are read.
        """
        ...

    def cuts(self, run: int) -> dict[str, int]:
        """Returns how many proposals of the budget were cut, by reason."""
        ...

    def funnel(self, run: int, limit: int) -> list[FunnelGroup]:
        """Returns how far the first `limit` proposals of the budget came that were begun.

        One group for each operator, model and step reached, in that order.
        """
        ...

    def reused(self, run: int) -> Reused:
        """Returns how many trials of a run were not run, because an equal one had been."""
        ...

    def ledger_bytes(self) -> int:
        """Returns the size of the ledger's database."""
        ...

    def spent(self) -> Spent:
        """Returns the totals of all runs together."""
        ...
