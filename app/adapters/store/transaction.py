"""One open transaction: the ledger's intentions, each carried out by its aggregate's module."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlalchemy import Connection

from app.adapters.store import ancestry as stored_ancestry
from app.adapters.store import archive as stored_archive
from app.adapters.store import cohorts as stored_cohorts
from app.adapters.store import completions as stored_completions
from app.adapters.store import flow as stored_flow
from app.adapters.store import history as stored_history
from app.adapters.store import planning as stored_planning
from app.adapters.store import programs as stored_programs
from app.adapters.store import runs as stored_runs
from app.adapters.store import trials as stored_trials
from app.adapters.store import worker_time as stored_worker_time
from app.domain.evaluation import Evaluation, Trial
from app.domain.events import Event, EventKind, Fact
from app.domain.operator import Ancestry, Completion, ProgramRecord
from app.domain.problem import Axis, Problem, ProblemDigest
from app.domain.program import Program, ProgramId
from app.domain.run import Run, RunState
from app.domain.search.archive import Cell, Elite, IslandView, Quality
from app.domain.search.back_pressure import Flow, InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import Cohort, CohortId, ProposalId, State, TrialId
from app.ports.records import (
    Account,
    Backlog,
    CompletionKey,
    LeasedTrial,
    MemberResult,
    NewRun,
    Plan,
    Settled,
    Spent,
    StoredProblem,
    TrialResult,
    Turn,
    Worker,
    WorkerTime,
)


class SqlTransaction:
    """See `app.ports.ledger.Transaction`.

    What writes the run's row is held back and written last (completions, which it accounts for,
    limits, events, which it numbers), so that its lock is the last taken and the shortest held.
    """

    def __init__(self, connection: Connection) -> None:
        self._c = connection
        self._last: list[Callable[[], None]] = []
        self._events: dict[int, list[Fact]] = {}

    def emit(self, run: int, fact: Fact) -> None:
        self._events.setdefault(run, []).append(fact)

    @property
    def holds_back(self) -> bool:
        """Whether there is anything left to write."""
        return bool(self._events or self._last)

    def write_last(self) -> None:
        """Writes what was held back; called once, right before the commit."""
        for write in self._last:
            write()
        self._last.clear()
        for run, batch in sorted(self._events.items()):
            stored_history.write_events(self._c, run, batch)
        self._events.clear()

    def add_problem(self, problem: Problem) -> None:
        stored_runs.add_problem(self._c, problem)

    def problem(self, digest: ProblemDigest) -> StoredProblem:
        return stored_runs.problem(self._c, digest)

    def add_run(self, new: NewRun) -> Run:
        return stored_runs.add_run(self._c, new)

    def run(self, run: int) -> Run:
        return stored_runs.run(self._c, run)

    def run_named(self, name: str) -> Run | None:
        return stored_runs.run_named(self._c, name)

    def runs(self, limit: int = 100) -> list[Run]:
        return stored_runs.runs(self._c, limit)

    def running(self) -> list[int]:
        return stored_runs.running(self._c)

    def unsettled_cohorts(self, run: int) -> list[CohortId]:
        return stored_planning.unsettled(self._c, run)

    def exclusive(self, run: int) -> bool:
        return stored_runs.exclusive(self._c, run)

    def set_state(
        self, run: int, before: Sequence[RunState], after: RunState, reason: str = ""
    ) -> bool:
        return stored_runs.set_state(self._c, run, before, after, reason)

    def explain(self, run: int, reason: str) -> None:
        stored_runs.explain(self._c, run, reason)

    def set_axes(self, run: int, axes: Sequence[Axis]) -> None:
        stored_runs.set_axes(self._c, run, axes)

    def set_limits(self, run: int, limits: InFlightLimits) -> None:
        self._last.append(partial(stored_flow.set_limits, self._c, run, limits))

    def set_budget(self, run: int, budget: Budget) -> None:
        stored_runs.set_budget(self._c, run, budget)

    def put_programs(self, programs: Sequence[Program]) -> None:
        stored_programs.put_programs(self._c, programs)

    def programs(self, ids: Sequence[ProgramId]) -> dict[ProgramId, Program]:
        return stored_programs.programs(self._c, ids)

    def programs_named(self, run: int, beginning: str) -> list[ProgramId]:
        return stored_programs.programs_named(self._c, run, beginning)

    def lengths(self, ids: Sequence[ProgramId]) -> dict[ProgramId, int]:
        return stored_programs.lengths(self._c, ids)

    def known(
        self, run: int, ids: Sequence[ProgramId], *, measured: bool
    ) -> dict[ProgramId, ProgramRecord]:
        return stored_programs.known(self._c, run, ids, measured=measured)

    def children(self, run: int, parent: ProgramId, limit: int) -> tuple[ProgramRecord, ...]:
        return stored_programs.children(self._c, run, parent, limit)

    def ancestry(self, run: int, program: ProgramId, *, ancestors: int, failures: int) -> Ancestry:
        return stored_ancestry.ancestry(self._c, run, program, ancestors, failures)

    def claim_fingerprints(
        self, run: int, claims: Sequence[tuple[int, str]]
    ) -> set[tuple[int, str]]:
        return stored_programs.claim_fingerprints(self._c, run, claims)

    def backlog(self, run: int) -> Backlog:
        return stored_planning.backlog(self._c, run)

    def waiting(self, run: int) -> dict[str, int]:
        return stored_planning.waiting(self._c, run)

    def flow(self, run: int, settled: int) -> Flow | None:
        return stored_flow.flow(self._c, run, settled)

    def lasts_seconds(self, run: int, over: int = 32) -> float:
        return stored_planning.lasts_seconds(self._c, run, over)

    def add_cohorts(
        self, run: int, plans: Sequence[Plan], *, redeliver_seconds: float
    ) -> list[CohortId]:
        return stored_planning.add_cohorts(self._c, run, plans, redeliver_seconds)

    def claim_cohorts(
        self, cohorts: Sequence[CohortId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, Cohort]]:
        return stored_cohorts.claim_cohorts(self._c, cohorts, lease_seconds, attempts)

    def cohort(self, cohort: CohortId) -> tuple[Run, Cohort]:
        return stored_cohorts.cohort(self._c, cohort)

    def planned(self, cohorts: Sequence[CohortId]) -> tuple[Run, set[CohortId]]:
        return stored_cohorts.planned(self._c, cohorts)

    def enter(self, cohorts: Sequence[Cohort], children: Sequence[MemberResult]) -> None:
        stored_cohorts.enter(self._c, cohorts, children)

    def completions(self, cohort: CohortId) -> Mapping[int, Mapping[int, Completion]]:
        return stored_completions.of_cohort(self._c, cohort)

    def save_completions(self, turns: Sequence[Turn]) -> Callable[[], list[Turn]]:
        saving = stored_completions.Saving(turns)
        self._last.append(partial(saving.write, self._c))
        return saving.overtaken

    def recall(self, asked: Sequence[CompletionKey]) -> list[Completion | None]:
        return stored_completions.recall(self._c, asked)

    def replay(self, run: int, asked: Sequence[tuple[str, int]]) -> list[Completion | None]:
        return stored_completions.replay(self._c, run, asked)

    def accounts(self, run: int) -> list[Account]:
        return stored_completions.accounts(self._c, run)

    def add_trials(
        self, trials: Sequence[tuple[Cohort, Trial]], *, redeliver_seconds: float
    ) -> list[TrialId]:
        return stored_trials.add_trials(self._c, trials, redeliver_seconds)

    def claim_trials(
        self, trials: Sequence[TrialId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, LeasedTrial]]:
        return stored_trials.claim_trials(self._c, trials, lease_seconds, attempts)

    def record(self, measured: Sequence[TrialResult]) -> tuple[Run, list[Cohort]] | None:
        return stored_cohorts.record(self._c, measured)

    def renew(
        self, cohorts: Sequence[CohortId], trials: Sequence[TrialId], lease_seconds: float
    ) -> None:
        stored_trials.renew(self._c, cohorts, trials, lease_seconds)

    def release(
        self, cohorts: Sequence[CohortId], trials: Sequence[TrialId], retry_seconds: float
    ) -> None:
        stored_trials.release(self._c, cohorts, trials, retry_seconds)

    def overdue(
        self, run: int, redeliver_seconds: float, limit: int = 1000
    ) -> tuple[list[CohortId], list[TrialId]]:
        return stored_trials.overdue(self._c, run, redeliver_seconds, limit)

    def forget_attempts(self, run: int) -> None:
        stored_trials.forget_attempts(self._c, run)

    def islands(self, run: int, *, lock: bool = False) -> tuple[IslandView, ...]:
        return stored_archive.islands(self._c, run, lock=lock)

    def island(self, run: int, index: int, *, lock: bool = False) -> IslandView:
        return stored_archive.island(self._c, run, index, lock=lock)

    def put_cell(
        self, run: int, island: int, cell: Cell, *, seen: IslandView | None = None
    ) -> bool:
        return stored_archive.put_cell(self._c, run, island, cell, seen)

    def clear_island(self, run: int, island: int, *, reset: bool) -> None:
        stored_archive.clear_island(self._c, run, island, reset=reset)

    def record_shifts(self, worker: Worker, seconds: Mapping[int | None, float]) -> None:
        stored_worker_time.record(self._c, worker, seconds)

    def shifts(self, run: int) -> list[WorkerTime]:
        return stored_worker_time.of_run(self._c, run)

    def busy_shifts(self) -> list[WorkerTime]:
        return stored_worker_time.busy(self._c)

    def idle_shifts(self) -> list[WorkerTime]:
        return stored_worker_time.idle(self._c)

    def spent(self) -> Spent:
        return stored_runs.spent(self._c)

    def events(
        self, run: int, after: int = 0, limit: int = 1000, kinds: Sequence[EventKind] = ()
    ) -> list[Event]:
        return stored_history.events(self._c, run, after, limit, kinds)

    def best(self, run: int) -> Settled | None:
        return stored_history.best(self._c, run)

    def best_quality(self, run: int, besides: Sequence[ProposalId] = ()) -> Quality | None:
        return stored_history.best_quality(self._c, run, besides)

    def settled(self, run: int, after: int = 0, limit: int = 1000) -> list[Settled]:
        return stored_history.settled(self._c, run, after, limit)

    def states(self, run: int) -> dict[State, int]:
        return stored_history.states(self._c, run)

    def failures(self, run: int) -> dict[str, int]:
        return stored_history.failures(self._c, run)

    def elites(self, run: int) -> list[tuple[int, Elite]]:
        return stored_history.elites(self._c, run)

    def evaluations(self, run: int, program: ProgramId) -> list[Evaluation]:
        return stored_history.evaluations(self._c, run, program)

    def placed(self, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
        return stored_history.placed(self._c, run, limit)
