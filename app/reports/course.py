"""Course of a run: what its charts show, folded from its events one after the other.

The fold of the first n events followed by that of the rest equals the fold of all of them.  Its
size is bounded: of a long run it keeps every second, fourth, eighth … measured proposal.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from itertools import zip_longest
from operator import add

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
_RECENT_PROGRAMS = 512
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
      admitted: Whether a cell took it.
    """

    settled: int
    seconds: float
    fitness: float
    program: ProgramId
    island: int
    operator: str
    admitted: bool


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best of the run.

    Attributes:
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
      admitted: Proposals that a cell took.
      refused: Measured proposals that no cell took.
      improvements: How many became the best of the run.
    """

    settled: int = 0
    admitted: int = 0
    refused: int = 0
    cut: int = 0
    failed: int = 0
    improvements: int = 0

    def plus(self, other: "Contribution") -> "Contribution":
        """Returns the contribution of both."""
        return Contribution(*map(add, astuple(self), astuple(other)))


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
        self._authors: dict[ProgramId, tuple[str, str]] = {}

    @property
    def points(self) -> list[MeasuredProposal]:
        """Measured proposals in order: all, or every n-th of a long run."""
        return self._points

    def add(self, events: Iterable[Event]) -> None:
        """Folds in the next events, in their order."""
        for event in events:
            self.progress = fold(self.progress, (event,))
            self._add(event)
            self.games.add(event)
            if event.kind in _MILESTONES:
                text = _words(event)
                self.milestones.append(Milestone(event.seq, event.seconds, event.kind, text))

    def _add(self, event: Event) -> None:
        match event.fact:
            case Founded() | Admitted() | Refused() as fact:
                self._offered(event, fact)
            case Cut(why=CutReason.RETURNED):
                pass  # nothing of it was begun
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
            case Moved(reset=reset):
                self.moves += 1
                self.resets += reset
            case Regridded():
                self.regridded += 1
            case _:
                pass

    def _offered(self, event: Event, fact: Founded | Admitted | Refused) -> None:
        if fact.proposal is None:
            return
        entered = not isinstance(fact, Refused)
        self._authors[fact.program] = fact.operator, fact.role
        if len(self._authors) > _RECENT_PROGRAMS:
            del self._authors[next(iter(self._authors))]
        if not isinstance(fact, Founded):
            for share in self._shares(fact.operator, fact.role):
                share.settled += 1
                share.admitted += entered
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
        self._measured += 1
        if len(self._points) > 2 * MOST_POINTS:
            self._points = self._points[::2]
            self._stride *= 2

    def _improved(self, event: Event, fact: Improved) -> None:
        operator, role = self._authors.get(fact.program, ("", ""))
        self.improvements.append(
            Improvement(
                self.progress.done, event.seconds, fact.fitness, fact.program, operator, role
            )
        )
        if operator in self.operators:
            for share in self._shares(operator, role):
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


def course_of(store: Store, run: int) -> Course:
    """Returns the course of a run up to now."""
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
