"""Course of a run: what its charts show, folded from its events one after the other.

The fold of the first n events followed by that of the rest equals the fold of all of them.  Its
size is bounded: of a long run it keeps every second, fourth, eighth … measured proposal.
"""

import math
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from itertools import zip_longest
from operator import add
from types import MappingProxyType

from app.domain.events import (
    Admitted,
    Broken,
    Cancelled,
    Changed,
    Cut,
    Event,
    EventKind,
    Failed,
    Finished,
    Founded,
    Improved,
    Moved,
    Noticed,
    Paused,
    Refused,
    Regridded,
    Rerated,
    Resumed,
    Started,
)
from app.domain.program import ProgramId
from app.domain.search.cohort import CutReason
from app.ports.protocols import Store
from app.reports.games import Games
from app.reports.progress import Progress, fold

PAGE = 1000
"""Events that are read at once."""
MOST_POINTS = 1000
"""Measured proposals that are kept: twice as many before every second one is left out."""
MOST_SEGMENTS = 24
"""Segments of a run whose outcomes are counted: twice as many before every two become one."""
MOST_EXAMPLES = 5
"""Newest failures of a kind that are kept."""
MOST_MILESTONES = 100
"""Newest changes of state, migrations and notices that are kept."""
MOST_METRICS = 1000
"""Metrics of the evaluator that are kept, the first that appeared; the rows of `/api` have all."""
_RECENT_PROGRAMS = 512
_NO_METRICS: Mapping[str, float] = MappingProxyType({})
_MILESTONES = (
    *(EventKind.STARTED, EventKind.RESUMED, EventKind.PAUSED, EventKind.FINISHED),
    *(EventKind.CANCELLED, EventKind.BROKEN, EventKind.NOTICED, EventKind.REGRIDDED),
    EventKind.CHANGED,
)


@dataclass(frozen=True, slots=True)
class MeasuredProposal:
    """A proposal that was offered to the archive.

    Attributes:
      settled: Proposals of the budget that had settled by then; 0 for a seed.
      seconds: After the run's creation.
      entered: Whether a cell took it.
    """

    settled: int
    seconds: float
    fitness: float
    program: ProgramId
    island: int
    operator: str
    entered: bool


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best of the run.

    Attributes:
      fitness: Of a champion of games, what it was last rated at while it was the champion.
      operator: Of the proposal that made it; "" where an incumbent became the champion.
      role: Role of the model that wrote it.
    """

    settled: int
    seconds: float
    fitness: float
    program: ProgramId
    operator: str
    role: str


@dataclass(slots=True)
class Contribution:
    """What one operator, the models of one role, or a segment of the run contributed.

    Attributes:
      entered: Proposals that a cell took.
      refused: Measured proposals that no cell took.
      improvements: How many became the best of the run.
    """

    settled: int = 0
    entered: int = 0
    refused: int = 0
    cut: int = 0
    failed: int = 0
    improvements: int = 0

    def plus(self, other: "Contribution") -> "Contribution":
        """Returns the contribution of both."""
        return Contribution(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """A metric of the evaluator at one measured proposal, or at a new best of the run.

    Attributes:
      settled, program, entered: See `MeasuredProposal`.
    """

    settled: int
    value: float
    program: ProgramId
    entered: bool


@dataclass(frozen=True, slots=True)
class MetricCourse:
    """A metric of the evaluator over the run; a program without it has no point.

    Attributes:
      points: Of the measured proposals that the course keeps.
      best: Of each program that became the best of the run.
    """

    name: str
    points: list[MetricPoint]
    best: list[MetricPoint]


class MetricColumns:
    """Metrics of a sequence of programs, one column for each name.

    A column of floats takes a tenth of the memory of a dictionary for each program, which matters
    where an evaluator reports hundreds of metrics.
    """

    def __init__(self) -> None:
        """Has no rows."""
        self._columns: dict[str, array[float]] = {}
        self._rows = 0

    @property
    def names(self) -> list[str]:
        return sorted(self._columns)

    def append(self, metrics: Mapping[str, float]) -> None:
        """Adds the row of the next program."""
        for name, value in metrics.items():
            if name not in self._columns and len(self._columns) == MOST_METRICS:
                continue
            column = self._columns.setdefault(name, array("d"))
            column.extend([math.nan] * (self._rows - len(column)))
            column.append(value)
        self._rows += 1

    def halve(self) -> None:
        """Keeps every second row, the first included."""
        self._columns = {name: column[::2] for name, column in self._columns.items()}
        self._rows = (self._rows + 1) // 2

    def values(self, name: str) -> Iterator[tuple[int, float]]:
        """Yields the rows that have a metric, each with its value."""
        for row, value in enumerate(self._columns.get(name, ())):
            if not math.isnan(value):
                yield row, value


@dataclass(frozen=True, slots=True)
class _Author:
    """What is remembered of a program that was offered lately."""

    operator: str
    role: str
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FailureExample:
    """A failed proposal; `program` is None where the reply held none."""

    proposal: int
    program: ProgramId | None
    operator: str
    island: int


@dataclass(frozen=True, slots=True)
class Milestone:
    """A change of the run's state, or a notice, in words."""

    seq: int
    seconds: float
    kind: EventKind
    text: str


class Course:
    """The course of a run by its events so far.

    Attributes:
      progress: Counts, and the rate of the newest proposals.
      improvements: Each new best of the run, once.
      bests: The same, and a champion once more, with its other fitness, when it was rated anew: the
        line of the best so far.
      segments: What became of the proposals: of each `span` that settled one after the other.
      failed: The failures of each segment, by kind; those of seeds left out.
      regridded: How often the grid got new ranges: the archive was placed anew then.
      moves: Migrations between islands; `resets` of them emptied an island first.
      games: What a problem whose programs play each other has beside.
    """

    def __init__(self) -> None:
        """Begins before the first event."""
        self.progress = Progress()
        self.improvements: list[Improvement] = []
        self.bests: list[Improvement] = []
        self.operators: dict[str, Contribution] = {}
        self.roles: dict[str, Contribution] = {}
        self.segments: list[Contribution] = []
        self.failed: list[Counter[str]] = []
        self.span = 1
        self.examples: dict[str, deque[FailureExample]] = {}
        self.milestones: deque[Milestone] = deque(maxlen=MOST_MILESTONES)
        self.games = Games()
        self.regridded = self.moves = self.resets = 0
        self._points: list[MeasuredProposal] = []
        self._stride = 1
        self._measured = 0
        self._authors: dict[ProgramId, _Author] = {}
        self._metrics_of_points = MetricColumns()
        self._metrics_of_best = MetricColumns()

    @property
    def points(self) -> list[MeasuredProposal]:
        """Measured proposals in order: all, or every n-th of a long run."""
        return self._points

    @property
    def metrics(self) -> list[str]:
        """Names of the evaluator's metrics, in the order of the alphabet."""
        return self._metrics_of_points.names

    def metric(self, name: str) -> MetricCourse:
        """Returns a metric of the evaluator at the points and at the improvements."""
        points, best = self._points, self.improvements
        return MetricCourse(
            name,
            [
                MetricPoint(points[row].settled, value, points[row].program, points[row].entered)
                for row, value in self._metrics_of_points.values(name)
            ],
            [
                MetricPoint(best[row].settled, value, best[row].program, entered=True)
                for row, value in self._metrics_of_best.values(name)
            ],
        )

    def add(
        self,
        events: Iterable[Event],
        metrics: Mapping[int, Mapping[str, float]] = MappingProxyType({}),
    ) -> None:
        """Folds in the next events, in their order.

        Args:
          events: Each once.
          metrics: What the evaluator reported of the proposals that they offer, by ordinal; the
            course of a metric lacks what is absent.
        """
        for event in events:
            self.progress = fold(self.progress, (event,))
            self._add(event, metrics)
            self.games.add(event)
            if event.kind in _MILESTONES:
                text = _words(event)
                self.milestones.append(Milestone(event.seq, event.seconds, event.kind, text))

    def _add(self, event: Event, metrics: Mapping[int, Mapping[str, float]]) -> None:
        match event.fact:
            case Founded() | Admitted() | Refused() as fact if fact.proposal is not None:
                self._offered(event, fact, metrics.get(fact.proposal, _NO_METRICS))
            case Cut(why=CutReason.RETURNED):
                # No work of a returned proposal was begun.
                pass
            case Cut() as fact:
                for share in self._shares(fact.operator, fact.role):
                    share.settled += 1
                    share.cut += 1
            case Failed() as fact:
                for share in self._shares(fact.operator, fact.role):
                    share.settled += 1
                    share.failed += 1
                if fact.proposal >= 0:
                    at = self._segment()
                    self.failed[at][fact.failure] += 1
                examples = self.examples.setdefault(fact.failure, deque(maxlen=MOST_EXAMPLES))
                examples.append(
                    FailureExample(fact.proposal, fact.program, fact.operator, fact.island)
                )
            case Improved() as fact:
                self._improved(event, fact)
            case Rerated(fitness=fitness) if self.improvements:
                last = replace(self.improvements[-1], fitness=fitness)
                self.improvements[-1] = last
                self.bests.append(replace(last, settled=self.progress.done, seconds=event.seconds))
            case Moved(reset=reset):
                self.moves += 1
                self.resets += reset
            case Regridded():
                self.regridded += 1
            case _:
                pass

    def _offered(
        self, event: Event, fact: Founded | Admitted | Refused, metrics: Mapping[str, float]
    ) -> None:
        entered = not isinstance(fact, Refused)
        self._authors[fact.program] = _Author(fact.operator, fact.role, metrics)
        if len(self._authors) > _RECENT_PROGRAMS:
            del self._authors[next(iter(self._authors))]
        if not isinstance(fact, Founded):
            for share in self._shares(fact.operator, fact.role):
                share.settled += 1
                share.entered += entered
                share.refused += not entered
        if self._measured % self._stride == 0:
            self._points.append(
                MeasuredProposal(
                    self.progress.done,
                    event.seconds,
                    fact.fitness,
                    fact.program,
                    fact.island,
                    fact.operator,
                    entered,
                )
            )
            self._metrics_of_points.append(metrics)
        self._measured += 1
        if len(self._points) > 2 * MOST_POINTS:
            self._points = self._points[::2]
            self._metrics_of_points.halve()
            self._stride *= 2

    def _improved(self, event: Event, fact: Improved) -> None:
        author = self._authors.get(fact.program, _Author("", "", _NO_METRICS))
        improvement = Improvement(
            self.progress.done,
            event.seconds,
            fact.fitness,
            fact.program,
            author.operator,
            author.role,
        )
        self.improvements.append(improvement)
        self.bests.append(improvement)
        self._metrics_of_best.append(author.metrics)
        if author.operator in self.operators:
            for share in self._shares(author.operator, author.role):
                share.improvements += 1

    def _shares(self, operator: str, role: str) -> tuple[Contribution, Contribution, Contribution]:
        at = self._segment()
        return (
            self.operators.setdefault(operator, Contribution()),
            self.roles.setdefault(role, Contribution()),
            self.segments[at],
        )

    def _segment(self) -> int:
        """Returns the index of the segment of the proposal that settled last."""
        at = max(self.progress.done - 1, 0) // self.span
        while len(self.segments) <= at:
            self.segments.append(Contribution())
            self.failed.append(Counter())
        if at < 2 * MOST_SEGMENTS:
            return at
        pairs = zip_longest(self.segments[::2], self.segments[1::2], fillvalue=Contribution())
        self.segments = [first.plus(second) for first, second in pairs]
        kinds = zip_longest(self.failed[::2], self.failed[1::2], fillvalue=Counter[str]())
        self.failed = [first + second for first, second in kinds]
        self.span *= 2
        return len(self.segments) - 1


def offered(events: Iterable[Event]) -> list[int]:
    """Returns the ordinals of the proposals that some events offer to the archive."""
    return [
        event.fact.proposal
        for event in events
        if isinstance(event.fact, Founded | Admitted | Refused) and event.fact.proposal is not None
    ]


def read_course(store: Store, run: int) -> Course:
    """Returns the course of a run up to now, without the evaluator's metrics."""
    course = Course()
    while True:
        with store.begin() as tx:
            page = tx.events.read(run, after=course.progress.seq, limit=PAGE)
        course.add(page)
        if len(page) < PAGE:
            return course


def _words(event: Event) -> str:
    match event.fact:
        case Started(budget=budget):
            return f"started with a budget of {budget} proposals"
        case Resumed(budget=budget):
            return f"resumed with a budget of {budget} proposals"
        case Paused(reason=reason):
            return f"paused: {reason}" if reason else "paused"
        case Finished(proposals=n, reason=reason):
            return f"finished after {n} proposals: {reason}"
        case Cancelled(reason=reason):
            return f"cancelled: {reason}" if reason else "cancelled"
        case Broken(reason=reason):
            return f"failed: {reason}"
        case Regridded(axes=axes):
            return f"the grid has new ranges: {', '.join(axis.name for axis in axes)}"
        case Noticed(text=text):
            return text
        case Changed() as change:
            return f"changed {change.text}"
        case _:
            return event.kind
