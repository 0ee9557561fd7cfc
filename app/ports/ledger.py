"""The ledger's side of a transaction: intentions, not rows, in a repository for each aggregate.

Booleans are compare-and-sets: *True* means that the caller is the first.  Locks are taken in one
order everywhere: programs by id, cohorts by id, fingerprints sorted, islands by index, the run.
Two transactions can therefore wait for each other, but never in a circle.  What a transaction does
to the run itself, and completions, which are counted on it, it does last: all others of the run
wait from there on.  Events are numbered right before the commit, under the run's row lock, so that
their numbers have no gaps and their order is commit order.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from app.domain.evaluation import Evaluation, FailureKind, Trial
from app.domain.events import Event, EventKind, Fact
from app.domain.operator import (
    Aim,
    Ancestry,
    Completion,
    Direction,
    Draft,
    FailedChild,
    MeasuredPoint,
    ProgramRecord,
    Role,
    TriedDirection,
)
from app.domain.problem import Axis, Outcome, Problem, ProblemDigest
from app.domain.program import Program, ProgramId
from app.domain.run import Run, RunState
from app.domain.scaling import Fleet
from app.domain.search.archive import Cell, CellKey, Elite, IslandView
from app.domain.search.back_pressure import Flow, InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import Cohort, CohortId, ProposalId, State, TrialId
from app.domain.search.fleets import FleetRules
from app.domain.search.model_mix import Written
from app.domain.search.shares import InFlight
from app.domain.search.strategy import Ranking
from app.ports.fleets import Fleets, Projects
from app.ports.history import History
from app.ports.records import (
    Account,
    Asker,
    Backlog,
    Capacity,
    ComparedRuns,
    CompletionKey,
    InsideRun,
    InsideTotals,
    LeasedProposals,
    LeasedTrial,
    MemberResult,
    NewRun,
    Plan,
    Presence,
    QueueDemand,
    Row,
    StoredProblem,
    StoredReply,
    TracedProposal,
    TrialQueue,
    TrialResult,
    Turn,
    WaitingTrial,
    Worker,
    WorkerTime,
)
from app.ports.retention import Retention


class Problems(Protocol):
    """Problems, by digest."""

    def add(self, problem: Problem) -> None:
        """Stores a problem's files once; the same digest again is not an error."""
        ...

    def get(self, digest: ProblemDigest) -> StoredProblem:
        """Returns what is stored of a problem.

        Raises:
          LookupError: No such problem.
        """
        ...


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


class Programs(Protocol):
    """Programs by content, and what a run knows of them."""

    def put(self, programs: Sequence[Program]) -> None: ...
    def get(self, ids: Sequence[ProgramId]) -> dict[ProgramId, Program]: ...
    def lengths(self, ids: Sequence[ProgramId]) -> dict[ProgramId, int]: ...

    def named(self, run: int, prefix: str) -> list[ProgramId]:
        """Returns a run's programs whose ids begin with `prefix`; two at most."""
        ...

    def records(
        self, run: int, ids: Sequence[ProgramId], *, measured: bool
    ) -> dict[ProgramId, ProgramRecord]:
        """Returns programs with their fitness in this run.

        Args:
          run: The run.
          ids: The programs.
          measured: Whether metrics, features and artifacts are wanted too.
        """
        ...

    def children(self, run: int, parent: ProgramId, limit: int) -> tuple[ProgramRecord, ...]:
        """Returns the parent's evaluated children, newest first."""
        ...

    def ancestry(self, run: int, program: ProgramId, *, ancestors: int, failures: int) -> Ancestry:
        """Returns up to so many ancestors of a program, and failed children of it and of them."""
        ...

    def failed(
        self,
        run: int,
        island: int,
        *,
        epoch: int,
        kinds: Collection[FailureKind],
        limit: int,
    ) -> list[Aim]:
        """Returns aims at the newest failed programs of an island's epoch; see `Population`."""
        ...

    def failed_child(self, run: int, program: ProgramId) -> FailedChild | None:
        """Returns how a program failed last in a run; None where it did not."""
        ...

    def born_since(self, run: int, family: str, program: ProgramId, most: int) -> int:
        """Returns how many of a run's children of a family are newer than a program; <= `most`."""
        ...

    def points(self, run: int, family: str, limit: int) -> tuple[MeasuredPoint, ...]:
        """Returns the points of a run's admitted and failed programs of a family, newest first."""
        ...

    def directions(self, run: int, limit: int) -> tuple[TriedDirection, ...]:
        """Returns the newest directions of a run's proposals with their outcome, newest first."""
        ...

    def are_taken(self, run: int, claims: Sequence[tuple[ProposalId, int, str]]) -> list[bool]:
        """Returns for each claim whether an earlier program of the run made it.

        It is not taken where its proposal has its child already: another worker entered it, and
        the claim is its own.

        Args:
          run: The run.
          claims: A proposal, the epoch and the fingerprint of its child.
        """
        ...

    def claim_fingerprints(
        self, run: int, claims: Sequence[tuple[int, str]]
    ) -> set[tuple[int, str]]:
        """Returns which of the claims no earlier program of the run made: epoch, fingerprint."""
        ...


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


class Outcomes(Protocol):
    """Outcomes of sandbox jobs, kept for runs that ask for them; see `Job.reuse`."""

    def recall(self, job: str) -> Outcome | None:
        """Returns the outcome that is kept under a job's digest; None where there is none."""
        ...

    def keep(self, job: str, outcome: Outcome) -> None:
        """Keeps an outcome; one that is kept already stays.

        Raises:
          ValueError: It is a failure.
        """
        ...


class Copies(Protocol):
    """Copies of runs, which travel from one ledger to another."""

    def rows(self, run: int) -> Iterator[Row]:
        """Yields every row of a run, those of its problem and programs too, in a fixed order.

        They have to be read before the transaction ends.
        """
        ...

    def add(self, rows: Iterable[Row], name: str) -> int:
        """Adds a run from its rows, and returns its number.

        A run that was going on is paused.  Programs and problems that are there already stay.

        Args:
          rows: As `rows` yields them.
          name: The run's name in this ledger.

        Raises:
          BadCopy: They are not the rows of a run, or of another version of the ledger.
          ValueError: The name is taken.
        """
        ...


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


class Archive(Protocol):
    """Islands and their cells."""

    def islands(self, run: int, *, lock: bool = False) -> tuple[IslandView, ...]:
        """Returns a run's islands in index order; with `lock` it locks them all, in that order."""
        ...

    def island(
        self,
        run: int,
        index: int,
        *,
        lock: bool = False,
        making: Callable[[ProgramId], int] = lambda _: 0,
    ) -> IslandView:
        """Returns an island of a run.

        Args:
          run: The run.
          index: The island's.
          lock: Whether to lock it.
          making: Returns how many children of a program the ledger does not name yet.
        """
        ...

    def cells(self, run: int, island: int, keys: Collection[CellKey]) -> dict[CellKey, Cell]:
        """Returns cells of an island, in one read; those without an occupant are empty."""
        ...

    def put_cell(
        self, run: int, island: int, cell: Cell, *, seen: IslandView | None = None
    ) -> bool:
        """Makes these the cell's occupants, and counts one admission on the island.

        Args:
          run: The run.
          island: The island's index.
          cell: The cell and its new occupants.
          seen: The island as it was read; nothing is done, and False returned, if any program has
            entered it since.  None where this transaction has locked it.
        """
        ...

    def clear_island(self, run: int, island: int, *, reset: bool) -> None:
        """Empties an island's cells; with `reset` it also enters its next epoch."""
        ...

    def champion(self, run: int) -> Elite | None:
        """Returns the best of the elites that lead their cells, on any island; None if none."""
        ...

    def elites(self, run: int) -> list[tuple[int, Elite]]:
        """Returns every (island, elite), by island, then cell, then rank."""
        ...


class Completions(Protocol):
    """Completions of language models, and what they cost."""

    def of_conversation(
        self, proposal: ProposalId, asker: Asker
    ) -> Mapping[int, Mapping[int, Completion]]:
        """Returns the stored completions of a conversation, by turn and place."""
        ...

    def save(self, turns: Sequence[Turn]) -> list[Turn]:
        """Stores completions for cohorts of one run, and adds their charge to the run's account.

        It locks the run, as the last but for the runs around it.
        A turn whose very completions are stored already is left as it is, and not charged again.
        A turn to which another worker's completions are stored is charged, and those stay; so do
        its drafts.  What a run inside another is charged, the one around it is charged, too.

        Returns:
          The turns of the latter kind.
        """
        ...

    def recall(self, keys: Sequence[CompletionKey]) -> list[Completion | None]:
        """Returns the first completion stored for each key in any run; None where there is none.

        A completion is returned as it was stored: its cost is that of then.
        """
        ...

    def replay(self, run: int, keys: Sequence[tuple[str, int]]) -> list[Completion | None]:
        """Returns a run's completion for each prompt digest and sample; None where none is."""
        ...

    def of_program(self, run: int, program: ProgramId, limit: int) -> list[StoredReply]:
        """Returns the first completions of proposals whose child is this program, in order."""
        ...

    def of_proposal(self, run: int, ordinal: int, limit: int) -> list[StoredReply]:
        """Returns the first completions of the proposal with this ordinal, in order."""
        ...

    def accounts(self, run: int) -> list[Account]:
        """Returns the totals of a run's completions, and of runs inside, by role and model."""
        ...

    def writers(self, run: int, programs: Sequence[ProgramId]) -> dict[tuple[str, str], int]:
        """Returns how many of the programs that were admitted each role and model took part in."""
        ...

    def written(self, run: int, role: Role, limit: int) -> dict[str, Written]:
        """Returns what came of the children that each model wrote in a role.

        Args:
          run: The run.
          role: The role of the completions.
          limit: How many of the run's newest settled proposals are looked at.
        """
        ...

    def written_by_operator(self, run: int, limit: int) -> dict[str, Written]:
        """Returns what came of the children of each operator that asked a model.

        A gain is a child that was measured.

        Args:
          run: The run.
          limit: How many of the run's newest settled proposals are looked at.
        """
        ...

    def written_before(
        self, models: Collection[str], chars: tuple[int, int], runs: int, limit: int
    ) -> dict[str, Written]:
        """Returns what came of the children of each operator in earlier runs.

        A gain is a child that was measured.

        Args:
          models: Names of the models whose completions count.
          chars: Least and most characters of the parents whose children count.
          runs: How many of the newest runs are looked at.
          limit: How many of the newest settled proposals of each.
        """
        ...


class Events(Protocol):
    """The log of a run."""

    def emit(self, run: int, fact: Fact) -> None: ...

    def read(
        self, run: int, after: int = 0, limit: int = 1000, kinds: Sequence[EventKind] = ()
    ) -> list[Event]:
        """Returns events with `seq` > `after`, in order; of `kinds` only, if any are given."""
        ...


class Workers(Protocol):
    """Worker processes: the places that they have, and the seconds that they spent, by run."""

    def record(self, worker: Worker, seconds: Mapping[int | None, float], places: Capacity) -> None:
        """Writes a worker's places, and its totals by run; smaller totals are ignored.

        Args:
          worker: The worker; it counts as live for `LIVE_SECONDS` from now.
          seconds: Its totals; None is time for no run.
          places: Its own; those of a worker that ends are None.
        """
        ...

    def capacity(self) -> Capacity:
        """Returns the places of the live workers together: one bounded read."""
        ...

    def presence(self) -> Presence:
        """Returns which steps have a worker now: one bounded read."""
        ...

    def demand(self, run: int | None = None) -> list[QueueDemand]:
        """Returns what running runs have for each queue, in order of run, queue and tag.

        Args:
          run: The one that is asked about; None for all.
        """
        ...

    def fleets(self) -> list[Fleet]:
        """Returns the workers of each queue: how many live, with their mean places, at what price.

        The price is that of the newest worker with one, live or not.
        """
        ...

    def evaluating(self) -> list[Worker]:
        """Returns the live workers that evaluate, as they last reported."""
        ...

    def live(self) -> list[Worker]:
        """Returns all live workers, as they last reported."""
        ...

    def at_work_for(self, run: int) -> list[Worker]:
        """Returns the workers that spent time on a run, and all live ones, as last reported."""
        ...

    def of_run(self, run: int) -> list[WorkerTime]:
        """Returns the time that workers spent on a run, by kind."""
        ...

    def busy(self) -> list[WorkerTime]:
        """Returns the time that workers spent on all runs together, by kind."""
        ...

    def idle(self) -> list[WorkerTime]:
        """Returns the time that workers spent on no run, by kind."""
        ...


class Transaction(Protocol):
    """Reads and writes that commit together."""

    problems: Problems
    runs: Runs
    programs: Programs
    cohorts: Cohorts
    proposals: Proposals
    trials: Trials
    outcomes: Outcomes
    copies: Copies
    leases: Leases
    archive: Archive
    completions: Completions
    events: Events
    workers: Workers
    fleets: Fleets
    projects: Projects
    history: History
    retention: Retention


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
