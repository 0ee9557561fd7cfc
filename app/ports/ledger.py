"""The ledger's side of a transaction: intentions, not rows.

Booleans are compare-and-sets: *True* means the caller is the first.  Locks are taken in one order
everywhere: programs by id, cohorts by id, fingerprints sorted, islands by index, the run.  Two
transactions can therefore wait for each other, but never in a circle.  Limits, completions and
events are buffered and written last, under the run's row lock, so that the events' numbers have no
gaps and their order is commit order.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from app.domain.evaluation import Trial
from app.domain.events import Fact
from app.domain.operator import Ancestry, Completion, ProgramRecord
from app.domain.problem import Axis, Problem, ProblemDigest
from app.domain.program import Program, ProgramId
from app.domain.run import Run, RunState
from app.domain.search.archive import Cell, IslandView, Quality
from app.domain.search.back_pressure import Flow, InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import Cohort, CohortId, ProposalId, TrialId
from app.ports.history import History
from app.ports.records import (
    Backlog,
    CompletionKey,
    LeasedTrial,
    MemberResult,
    NewRun,
    Plan,
    StoredProblem,
    TrialResult,
    Turn,
    Worker,
)


class Transaction(History, Protocol):
    """Reads and writes that commit together; what only reports read is in `History`."""

    # Problems and runs

    def add_problem(self, problem: Problem) -> None:
        """Stores a problem's files once; the same digest again is not an error."""
        ...

    def problem(self, digest: ProblemDigest) -> StoredProblem:
        """Returns what is stored of a problem.

        Raises:
          LookupError: No such problem.
        """
        ...

    def add_run(self, new: NewRun) -> Run:
        """Creates a run with its islands.

        Raises:
          ValueError: The name is taken.
        """
        ...

    def run(self, run: int) -> Run:
        """Returns a run.

        Raises:
          LookupError: No such run.
        """
        ...

    def run_named(self, name: str) -> Run | None:
        """Returns the run of that name, or of that id when the name is all digits."""
        ...

    def running(self) -> list[int]:
        """Returns the ids of the runs in state `running`, oldest first."""
        ...

    def unsettled_cohorts(self, run: int) -> list[CohortId]: ...

    def exclusive(self, run: int) -> bool:
        """Takes the run's planning lock until the transaction ends; False if another holds it."""
        ...

    def set_state(
        self, run: int, before: Sequence[RunState], after: RunState, reason: str = ""
    ) -> bool:
        """Moves a run from one of the states `before` to `after`."""
        ...

    def explain(self, run: int, reason: str) -> None:
        """Says what a running run waits for; "" once it waits no longer."""
        ...

    def set_axes(self, run: int, axes: Sequence[Axis]) -> None: ...

    def set_limits(self, run: int, limits: InFlightLimits) -> None: ...

    def set_budget(self, run: int, budget: Budget) -> None:
        """Raises or lowers a run's caps; that of proposals never below what is already planned."""
        ...

    # Programs

    def put_programs(self, programs: Sequence[Program]) -> None: ...
    def programs(self, ids: Sequence[ProgramId]) -> dict[ProgramId, Program]: ...
    def lengths(self, ids: Sequence[ProgramId]) -> dict[ProgramId, int]: ...

    def known(
        self, run: int, ids: Sequence[ProgramId], *, measured: bool
    ) -> dict[ProgramId, ProgramRecord]:
        """Returns programs with their fitness in this run.

        Args:
          run: The run.
          ids: Whom to look up.
          measured: Whether metrics, features and artifacts are wanted too.
        """
        ...

    def children(self, run: int, parent: ProgramId, limit: int) -> tuple[ProgramRecord, ...]:
        """Returns the parent's evaluated children, newest first."""
        ...

    def ancestry(self, run: int, program: ProgramId, *, ancestors: int, failures: int) -> Ancestry:
        """Returns up to so many ancestors of a program, and failed children of it and of them."""
        ...

    def claim_fingerprints(
        self, run: int, claims: Sequence[tuple[int, str]]
    ) -> set[tuple[int, str]]:
        """Returns which pairs of an island and a fingerprint are its first program with it."""
        ...

    # Cohorts

    def backlog(self, run: int) -> Backlog: ...

    def waiting(self, run: int) -> dict[str, int]:
        """Returns how many proposals wait for their operator, by operator."""
        ...

    def flow(self, run: int, settled: int) -> Flow | None:
        """Returns how fast the newest `settled` proposals passed; None before two have settled."""
        ...

    def lasts_seconds(self, run: int, over: int = 32) -> float:
        """Returns the mean from planning to settling of the newest proposals; 0.0 before any."""
        ...

    def add_cohorts(
        self, run: int, plans: Sequence[Plan], *, redeliver_seconds: float
    ) -> list[CohortId]:
        """Adds cohorts and counts them against the budget; their bells count as rung now."""
        ...

    def claim_cohorts(
        self, cohorts: Sequence[CohortId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, Cohort]]:
        """Leases planned cohorts of running or paused runs, but for those somebody holds.

        Raises:
          Exhausted: One was attempted `attempts` times and never finished.
        """
        ...

    def cohort(self, cohort: CohortId) -> tuple[Run, Cohort]:
        """Returns a cohort and its run, locking the cohort until the transaction ends."""
        ...

    def planned(self, cohorts: Sequence[CohortId]) -> tuple[Run, set[CohortId]]:
        """Locks cohorts of one run until the transaction ends, and returns the run.

        With it those whose members were not entered before; none if the run has ended.
        """
        ...

    def enter(self, cohorts: Sequence[Cohort], children: Sequence[MemberResult]) -> None:
        """Records what became of the cohorts' members: tested, cut, failed or admitted."""
        ...

    # Completions

    def completions(self, cohort: CohortId) -> Mapping[int, Mapping[int, Completion]]:
        """Returns what a model has answered in the cohort's conversation, by turn and place."""
        ...

    def save_completions(self, turns: Sequence[Turn]) -> Callable[[], list[Turn]]:
        """Stores what models answered to cohorts of one run, and adds it to the run's account.

        A turn whose very answers are stored already is left as it is, and not booked again.  One
        to which another worker's answers are stored is booked, and those stay; so do its drafts.

        Returns:
          What says, once the transaction has committed, which of the turns those others were.
        """
        ...

    def recall(self, asked: Sequence[CompletionKey]) -> list[Completion | None]:
        """Returns what was once answered to the same, in any run; None where nothing was.

        Of several answers the first; as it was stored, so that its cost is that of then.
        """
        ...

    def replay(self, run: int, asked: Sequence[tuple[str, int]]) -> list[Completion | None]:
        """Returns what a run was answered to a prompt's digest and sample; None where nothing."""
        ...

    # Trials

    def add_trials(
        self, trials: Sequence[tuple[Cohort, Trial]], *, redeliver_seconds: float
    ) -> list[TrialId]:
        """Adds trials, but for those their cohorts have; returns the ids of what was added."""
        ...

    def claim_trials(
        self, trials: Sequence[TrialId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, LeasedTrial]]:
        """Leases trials of runs that have no evaluation yet, but for those somebody holds.

        Raises:
          Exhausted: One was attempted `attempts` times and never finished.
        """
        ...

    def record(self, measured: Sequence[TrialResult]) -> tuple[Run, list[Cohort]] | None:
        """Records evaluations of one run; returns the run and their cohorts with them, locked.

        What has an evaluation keeps it.  None if that is true of all, or the run has ended.
        """
        ...

    # Leases

    def renew(
        self, cohorts: Sequence[CohortId], trials: Sequence[TrialId], lease_seconds: float
    ) -> None: ...

    def release(
        self, cohorts: Sequence[CohortId], trials: Sequence[TrialId], retry_seconds: float
    ) -> None:
        """Gives leases back: the attempt is not counted, the bell rings in `retry_seconds`."""
        ...

    def overdue(
        self, run: int, redeliver_seconds: float, limit: int = 1000
    ) -> tuple[list[CohortId], list[TrialId]]:
        """Returns unfinished work whose lease ran out, and counts its bells as rung now."""
        ...

    def forget_attempts(self, run: int) -> None:
        """Starts counting attempts anew; what `resume` does after a failure of the machinery."""
        ...

    # Archive

    def islands(self, run: int, *, lock: bool = False) -> tuple[IslandView, ...]:
        """Returns a run's islands in index order; locks them all, if asked, in that order."""
        ...

    def island(self, run: int, index: int, *, lock: bool = False) -> IslandView: ...

    def put_cell(
        self, run: int, island: int, cell: Cell, *, seen: IslandView | None = None
    ) -> bool:
        """Makes these the cell's occupants, and counts one admission on the island.

        Args:
          run: The run.
          island: The island's index.
          cell: The cell and who lives there from now on.
          seen: The island as it was read; nothing is done, and False returned, if anybody has
            entered it since.  None where this transaction has locked it.
        """
        ...

    def clear_island(self, run: int, island: int, *, reset: bool) -> None:
        """Empties an island's cells; with `reset` it also enters its next epoch."""
        ...

    # Workers

    def record_shifts(self, worker: Worker, seconds: Mapping[int | None, float]) -> None:
        """Writes a worker's totals by run, None being nobody's time; smaller ones are left out."""
        ...

    # Events, and the best so far

    def emit(self, run: int, fact: Fact) -> None: ...

    def best_quality(self, run: int, besides: Sequence[ProposalId] = ()) -> Quality | None:
        """Returns the best quality among all proposals but `besides`; None if there is none."""
        ...


class Exhausted(Exception):
    """A step was attempted too often without an end; the run's machinery is at fault.

    Attributes:
      run: Whose step it is.
      subject: The cohort or trial it is about.
    """

    def __init__(self, run: int, subject: int, attempts: int) -> None:
        super().__init__(
            f"started {attempts} times and never finished; the worker's log says what ended it. "
            f"`evoq resume` tries again"
        )
        self.run = run
        self.subject = subject
