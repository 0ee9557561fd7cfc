"""Runs: their state, limits, budget and grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.domain.problem import Axis, ProblemDigest
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import ProposalId, State
from app.domain.search.strategy import Ranking


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a run is created from.  Field meanings: `app.domain.run.Run`."""

    name: str
    problem: ProblemDigest
    strategy: str
    settings: Mapping[str, Any]
    operators: Mapping[str, float]
    axes: tuple[Axis, ...]
    seed: int
    islands: int
    budget: Budget
    limits: InFlightLimits
    parent: ProposalId | None = None
    in_process: bool = False


@dataclass(frozen=True, slots=True)
class InsideRun:
    """A proposal whose child a run inside its own finds.

    Attributes:
      proposal, ordinal, state: Of the proposal.
      reserved: Proposals that are set aside for the run; 0 once what it left was given back.
      run: None until it is begun.
    """

    proposal: ProposalId
    ordinal: int
    state: State
    reserved: int
    run: Run | None


@dataclass(frozen=True, slots=True)
class InsideTotals:
    """What the runs inside a run have spent together; it is part of what that run has spent."""

    runs: int = 0
    proposals: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of one `evoq compare`, which are named COMPARISON.PROBLEM.ARM.SEED.

    Attributes:
      runs: How many have begun; `finished` of them have finished.
    """

    name: str
    problems: Sequence[str]
    arms: Sequence[str]
    runs: int
    finished: int


class Runs(Protocol):
    """Runs: their state, limits, budget and grid."""

    def add(self, new: NewRun) -> Run:
        """Creates a run with its islands.

        Raises:
          ValueError: The name is taken.
        """
        ...

    def get(self, run: int) -> Run:
        """Returns a run.

        Raises:
          LookupError: No such run.
        """
        ...

    def named(self, name: str) -> Run | None:
        """Returns the run of that name, or of that id when the name is all digits."""
        ...

    def newest(self, limit: int = 100) -> list[Run]:
        """Returns the newest runs that are in no other run, newest first."""
        ...

    def searching(self, proposal: ProposalId) -> Run | None:
        """Returns the run inside that is to find the child of a proposal; None before it begins."""
        ...

    def around(self, proposal: ProposalId) -> tuple[Run, State]:
        """Returns the run of a proposal and the proposal's state."""
        ...

    def inside(self, run: int, *, reserving: bool, limit: int = 1000) -> list[InsideRun]:
        """Returns the first runs inside a run, in the order of their proposals.

        Args:
          run: The run around them.
          reserving: Whether only proposals are wanted for which the budget still has something set
            aside, and those too whose run has not begun.
          limit: Most to return.
        """
        ...

    def sum_inside(self, run: int) -> InsideTotals:
        """Returns what the runs inside a run have spent."""
        ...

    def goes_on(self, run: int) -> bool:
        """Returns whether a run has not ended, and keeps its state until the transaction ends.

        It locks the run, as the last but for the runs around it.
        """
        ...

    def comparisons(self, limit: int = 100) -> list[ComparedRuns]:
        """Returns the newest comparisons, newest first."""
        ...

    def of_comparison(self, name: str, limit: int = 1000) -> list[Run]:
        """Returns the first runs of a comparison, in the order in which they began."""
        ...

    def running(self, *, in_process: bool = False) -> list[int]:
        """Returns the ids of the runs in state `running`, oldest first.

        Args:
          in_process: Whether those are wanted that one process alone works on, or all others.
        """
        ...

    def lock_planning(self, run: int) -> bool:
        """Takes the run's planning lock until the transaction ends; False if another holds it."""
        ...

    def set_state(
        self, run: int, before: Sequence[RunState], after: RunState, reason: str = ""
    ) -> bool:
        """Moves a run from one of the states `before` to `after`."""
        ...

    def explain(self, run: int, reason: str) -> None:
        """Stores what a running run waits for; "" once it waits no longer."""
        ...

    def revise(self, run: Run, settings: Mapping[str, Any], operators: Mapping[str, float]) -> bool:
        """Gives a run other settings and operators; False if they were changed since it was read.

        What holds of them for every transaction holds from the end of this one on.
        """
        ...

    def set_axes(self, run: int, axes: Sequence[Axis]) -> None: ...

    def set_ranking(self, run: int, ranking: Ranking) -> None:
        """Stores what the strategy's fitness means, once, when the run is created."""
        ...

    def set_operators(self, run: int, operators: Mapping[str, float]) -> None:
        """Stores the weights of a run's operators."""
        ...

    def give_back(self, run: int, proposals: int) -> None:
        """Takes proposals of a run that were never begun out of what it has spent.

        Also of a run that was cancelled meanwhile, which a resume lets go on.  Nothing is done for
        a run inside whose slice has been returned: the run around counts what it had spent then.

        It locks the run, as the last but for the runs around it.
        """
        ...

    def lock_spent(self, run: int) -> int:
        """Returns how many proposals a run has spent, which stays so until the transaction ends.

        It locks the run, as the last but for the runs around it.
        """
        ...

    def set_limits(self, run: int, limits: InFlightLimits) -> None:
        """Stores a run's limits.  It locks the run, as the last but for the runs around it."""
        ...

    def set_budget(self, run: int, budget: Budget) -> None:
        """Raises or lowers a run's caps; that of proposals never below what is already planned."""
        ...
