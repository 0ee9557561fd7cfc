"""What the pages and `/api` read of the ledger: typed documents, each bounded.

Every function opens one transaction and blocks until it has read: callers run it in a thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.adapters.queue.address import client_url
from app.adapters.queue.live_moves import live_moves
from app.dashboard.system import Installation, SystemDocument, system_document
from app.domain.problem import Axis, Problem, ProblemDigest
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.scaling import Goal, Sizing
from app.domain.search.archive import Quality
from app.domain.search.cohort import State, TrialId
from app.domain.secrets import redacted
from app.ports.protocols import Store
from app.reports.champions import read_champions
from app.reports.course import (
    Contribution,
    Course,
    FailureExample,
    Improvement,
    MeasuredProposal,
    MetricCourse,
    Milestone,
)
from app.reports.documents import RunDocument, read_run
from app.reports.generations import GenerationRow, has_generations
from app.reports.lineage import TreeNode, tree
from app.reports.measured import present_fitness, read_lineage
from app.reports.metrics import MetricsRow, generations_of, rows
from app.reports.patch import Change
from app.reports.program import (
    ProgramDocument,
    ProposalDocument,
    program_named,
    proposal_document,
    read_changes,
    read_difference,
    read_program,
)
from app.reports.runs import RunRow, read_runs
from app.reports.scaling import read_sizing
from app.reports.waiting import QueueState

MOST_CELLS = 2500
"""Cells of an island that an archive shows, the fittest first."""
MOST_ANCESTORS = 500
MOST_IMPROVEMENTS = 500
"""New bests of a run whose branches are in its tree, the newest."""
FAILURES_READ = 500
"""Newest failures of a kind among which the commonest message is looked for."""


@dataclass(frozen=True, slots=True)
class CourseDocument:
    """The folded events of a run.

    Attributes:
      seq: The last event folded in.
      rate: Settled proposals per second; None while too few have settled.
      points: Measured proposals in order; of a long run every n-th.
      segments: What became of the proposals: of each `span` that settled one after the other.
      failed: The failures of each segment, by kind.
      examples: Newest failures by kind.
      milestones: Changes of state, migrations and notices, newest last.
      metrics: Names of the evaluator's metrics, whose values are in `metric`.
    """

    run: int
    seq: int
    settled: int
    rate: float | None
    best: float | None
    cuts: dict[str, int]
    failures: dict[str, int]
    improvements: list[Improvement]
    points: list[MeasuredProposal]
    operators: dict[str, Contribution]
    roles: dict[str, Contribution]
    segments: list[Contribution]
    failed: list[dict[str, int]]
    span: int
    examples: dict[str, list[FailureExample]]
    milestones: list[Milestone]
    metrics: list[str]


@dataclass(frozen=True, slots=True)
class CellDocument:
    """A cell of the archive and the elite that leads it.

    Attributes:
      stages_left: How many stages the elite was not measured at.
    """

    island: int
    cell: list[int | float | str]
    program: ProgramId
    fitness: float
    generation: int
    stages_left: int

    @property
    def quality(self) -> Quality:
        return Quality(-self.stages_left, self.fitness)


@dataclass(frozen=True, slots=True)
class ArchiveDocument:
    """The archive of a run.

    Attributes:
      axes: The feature grid; () where the recipe has cells of its own.
      sizes: Occupied cells of each island.
      cells: Of one island, or of all; at most `MOST_CELLS` an island, the fittest first.
    """

    axes: list[Axis]
    sizes: list[int]
    cells: list[CellDocument]


@dataclass(frozen=True, slots=True)
class TreeDocument:
    """The programs that became the best of a run, and their ancestors.

    Attributes:
      measured: Proposals that were measured to the end, seeds not counted.
      improvements: How often the run had a new best; the tree has the newest
        `MOST_IMPROVEMENTS`.
      best: The newest; None before there is one.
      nodes: Parents before their children.
    """

    run: int
    measured: int
    improvements: int
    best: ProgramId | None
    nodes: list[TreeNode]


@dataclass(frozen=True, slots=True)
class RunReader:
    """Reads documents of one ledger.

    Attributes:
      problem: Returns a problem by digest.
      queue: Returns what the queue's server shows; see `watched_queue`.
      home: The folder whose disk is shown.
      installation: Returns what `evoq doctor` finds where the dashboard runs.
    """

    store: Store
    redis_url: str
    problem: Callable[[ProblemDigest], Problem]
    queue: Callable[[], QueueState]
    home: Path = Path()
    installation: Installation = list

    def run(self, name: str) -> Run:
        """Returns the run with that name or number.

        Raises:
          LookupError: There is none.
        """
        with self.store.begin() as tx:
            run = tx.runs.named(name)
        if run is None:
            raise LookupError(f"there is no run {name!r}: /api/runs names them")
        return run

    def newest(self) -> list[Run]:
        """Returns the newest hundred runs, newest first, and nothing of their progress."""
        with self.store.begin() as tx:
            return tx.runs.newest()

    def runs(self, *, inside: bool = True) -> list[RunRow]:
        """Returns the newest hundred runs, newest first; see `read_runs`."""
        return read_runs(self.store, self.queue(), inside=inside)

    def document(self, run: Run, *, ratings: bool = False) -> RunDocument:
        """Returns the document of a run; see `read_run`."""
        problem, unreadable = self._problem(run)
        document = read_run(self.store, run, problem, self.queue(), ratings=ratings)
        return replace(document, unreadable=unreadable)

    def _problem(self, run: Run) -> tuple[Problem | None, str]:
        """Returns a run's problem, or None and why this version cannot read it."""
        try:
            return self.problem(run.problem), ""
        except ValueError as error:
            return None, str(error)

    def proposals(self, run: Run, after: int, limit: int) -> list[MetricsRow]:
        """Returns settled proposals in order of settling, skipping the first `after`.

        `best_so_far` is that of the rows returned, or of the champion where programs play each
        other.
        """
        with self.store.begin(snapshot=True) as tx:
            page = tx.history.settled(run.id, after=after, limit=limit)
            return list(rows(page, champions=read_champions(tx, run)))

    def generations(self, run: Run) -> list[GenerationRow]:
        """Returns the metrics of generations; none of a run whose recipe plans without them."""
        return generations_of(self.store, run) if has_generations(run) else []

    def archive(self, run: Run, island: int | None = None) -> ArchiveDocument:
        """Returns the archive of a run.

        Raises:
          LookupError: There is no such island.
        """
        if island is not None and not 0 <= island < run.islands:
            raise LookupError(f"{run.name} has the islands 0 to {run.islands - 1}, not {island}")
        with self.store.begin(snapshot=True) as tx:
            views = tx.archive.islands(run.id)
            cells = [
                CellDocument(
                    view.index, list(e.cell), e.program, e.fitness, e.generation, e.stages_left
                )
                for view in views
                if island is None or view.index == island
                for e in view.heads(MOST_CELLS)
            ]
            return ArchiveDocument(list(run.axes), [view.size for view in views], cells)

    def program(self, run: Run, beginning: str) -> ProgramDocument:
        """Returns a program of a run by the beginning of its id.

        Raises:
          LookupError: No program of the run has such an id, or several have.
        """
        return read_program(self.store, run, beginning, self._problem(run)[0])

    def proposal(self, run: Run, ordinal: int) -> ProposalDocument:
        """Returns a settled proposal of a run.

        Raises:
          LookupError: None has this ordinal.
        """
        with self.store.begin(snapshot=True) as tx:
            return proposal_document(tx, run, ordinal)

    def diff(self, run: Run, old: str, new: str) -> str:
        """Returns the unified difference between two programs of a run.

        Raises:
          LookupError: No program of the run has such an id, or several have.
        """
        return read_difference(self.store, run, old, new)

    def changes(self, run: Run, old: str, new: str) -> list[Change]:
        """Returns the files that differ between two programs of several files; see `diff`."""
        return read_changes(self.store, run, old, new)

    def lineage(self, run: Run, beginning: str) -> list[MetricsRow]:
        """Returns the admissions of a program and its ancestors, the program first.

        A player on a podium has the fitness that it is rated at now.

        Raises:
          LookupError: No program of the run has such an id, or several have.
        """
        with self.store.begin(snapshot=True) as tx:
            program = program_named(tx, run, beginning)
            line = read_lineage(tx, run, program, MOST_ANCESTORS)
            return list(rows(line, champions=read_champions(tx, run)))

    def tree(self, run: Run, improvements: Sequence[Improvement]) -> TreeDocument:
        """Returns the tree of a run.

        A player on a podium has the fitness that it is rated at now.

        Args:
          run: The run.
          improvements: The programs that became its best, in order.
        """
        best = [improvement.program for improvement in improvements[-MOST_IMPROVEMENTS:]]
        with self.store.begin(snapshot=True) as tx:
            present = present_fitness(tx, run)
            births = [
                replace(birth, fitness=present.get(birth.program, birth.fitness))
                for birth in tx.history.ancestry(run.id, best)
            ]
            measured = tx.history.states(run.id).get(State.ADMITTED, 0)
        return TreeDocument(
            run=run.id,
            measured=measured,
            improvements=len(improvements),
            best=best[-1] if best else None,
            nodes=tree(births, frozenset(best)),
        )

    def moves(self, trials: Sequence[TrialId]) -> dict[TrialId, list[str]]:
        """Returns the moves so far of games at work; none where the queue does not answer."""
        try:
            return live_moves(client_url(self.redis_url), trials)
        except OSError:
            return {}

    def usual_failures(self, run: Run, kinds: Sequence[str]) -> dict[str, str]:
        """Returns the commonest message among the newest failures of each kind."""
        with self.store.begin() as tx:
            usual = {kind: tx.history.usual_failure(run.id, kind, FAILURES_READ) for kind in kinds}
        return {kind: redacted(one.detail) for kind, one in usual.items() if one}

    def writers(self, run: Run, programs: Sequence[ProgramId]) -> dict[tuple[str, str], int]:
        """Returns how many of some programs each role and model took part in."""
        with self.store.begin() as tx:
            return tx.completions.writers(run.id, programs)

    def sizing(self, goal: Goal) -> Sizing:
        """Returns the size of each fleet for all running runs.

        Raises:
          ValueError: The goal limits dollars, and a worker that is needed has no known price.
        """
        return read_sizing(self.store, goal)

    def system(self) -> SystemDocument:
        """Returns the workers, queues, leases and endpoints of the deployment."""
        return system_document(self.store, self.redis_url, self.queue(), self.home)


def course_document(run: Run, course: Course) -> CourseDocument:
    """Returns a course as a document."""
    progress = course.progress
    return CourseDocument(
        run=run.id,
        seq=progress.seq,
        settled=progress.done,
        rate=progress.rate(run.elapsed_seconds),
        best=progress.best,
        cuts=dict(progress.cuts),
        failures=dict(progress.failures),
        improvements=course.improvements,
        points=course.points,
        operators=course.operators,
        roles=course.roles,
        segments=course.segments,
        failed=[dict(kinds) for kinds in course.failed],
        span=course.span,
        examples={kind: list(examples) for kind, examples in course.examples.items()},
        milestones=list(course.milestones),
        metrics=course.metrics,
    )


def metric_document(run: Run, course: Course, name: str) -> MetricCourse:
    """Returns a metric of the evaluator over a run.

    Raises:
      LookupError: No program of the run has it.
    """
    if name not in course.metrics:
        raise LookupError(
            f"no measured program of {run.name} has the metric {name!r}: `metrics` of "
            f"/api/runs/{run.id}/course names them"
        )
    return course.metric(name)
