"""Events: immutable facts of a run, numbered without gaps in the order of commit.

Each kind of event has a class with its typed fields.  `document` writes a fact as the JSON object
that the ledger stores, `read_fact` reads it back; nothing else knows the keys of that object.
"""

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeAlias, get_args

from app.domain.evaluation import FailureKind
from app.domain.operator import Role
from app.domain.problem import Axis, axis_of
from app.domain.program import ProgramId
from app.domain.search.archive import CellKey
from app.domain.search.cohort import CutReason


class EventKind(enum.StrEnum):
    """What happened."""

    STARTED = "started"
    RESUMED = "resumed"
    PAUSED = "paused"
    CHANGED = "changed"

    DIRECTED = "directed"
    ADMITTED = "admitted"
    REFUSED = "refused"
    CUT = "cut"
    FAILED = "failed"

    ENTERED = "entered"
    TESTED = "tested"
    PLAYED = "played"
    SCORED = "scored"
    CLOSED = "closed"

    FOUNDED = "founded"
    IMPROVED = "improved"
    CROWNED = "crowned"
    RERATED = "rerated"
    NOTICED = "noticed"
    MOVED = "moved"
    REGRIDDED = "regridded"

    VALIDATED = "validated"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The run was created.

    Attributes:
      budget: Proposals the run may plan.
      operators: Name to weight.
    """

    kind: ClassVar = EventKind.STARTED
    seed: int
    budget: int
    operators: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The run goes on, with a budget of so many proposals in all."""

    kind: ClassVar = EventKind.RESUMED
    budget: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The run plans nothing until it is resumed."""

    kind: ClassVar = EventKind.PAUSED
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A person gave the run another value of a setting; it holds for steps that begin afterwards.

    Attributes:
      setting: Its dotted key.
      before, after: JSON values; None where the setting has no value.
    """

    kind: ClassVar = EventKind.CHANGED
    setting: str
    before: Any
    after: Any

    @property
    def text(self) -> str:
        """The change in words."""
        before, after = json.dumps(self.before), json.dumps(self.after)
        return f"{self.setting}: {before} became {after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run ended as planned, after so many proposals."""

    kind: ClassVar = EventKind.FINISHED
    proposals: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A person ended the run."""

    kind: ClassVar = EventKind.CANCELLED
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The run failed, because of its seeds, its evaluator or the machinery."""

    kind: ClassVar = EventKind.BROKEN
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something that a person should know."""

    kind: ClassVar = EventKind.NOTICED
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Directed:
    """A proposal was given a direction for its child, before the child was asked for.

    Attributes:
      proposal: Ordinal of the proposal.
      category, text, by: See `Direction`.
    """

    kind: ClassVar = EventKind.DIRECTED
    proposal: int
    island: int
    category: str
    text: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Improved:
    """A program became the best of its run.

    Attributes:
      settled: Proposals that had settled by then.
    """

    kind: ClassVar = EventKind.IMPROVED
    program: ProgramId
    fitness: float
    settled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowned(Improved):
    """A program became the champion of a run whose ranking is relative."""

    kind: ClassVar = EventKind.CROWNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerated:
    """The champion of a run whose ranking is relative has another fitness, and is it still."""

    kind: ClassVar = EventKind.RERATED
    program: ProgramId
    fitness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """An elite of the island `source` entered a cell of `island`.

    Attributes:
      reset: Whether the island was emptied first, so that the elite founds it anew.
    """

    kind: ClassVar = EventKind.MOVED
    program: ProgramId
    fitness: float
    source: int
    island: int
    cell: CellKey
    reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Regridded:
    """The feature grid got new ranges, and every program was placed anew."""

    kind: ClassVar = EventKind.REGRIDDED
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A program was measured on validation data, after the last proposal.

    Attributes:
      fitness: By that data; None after a failure.
      failure: None where it was measured.
    """

    kind: ClassVar = EventKind.VALIDATED
    program: ProgramId
    fitness: float | None
    failure: FailureKind | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A program was offered to a cell of an island.

    Attributes:
      proposal: Ordinal of the proposal, negative for a seed; None for an incumbent.
      cell: The cell it entered; None where the cell kept its occupants.
      role: The role of the model that wrote the program.
    """

    proposal: int | None
    program: ProgramId
    island: int
    operator: str
    fitness: float
    cell: CellKey | None
    role: Role = Role.GENERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Founded(Offered):
    """A seed was offered to an island."""

    kind: ClassVar = EventKind.FOUNDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted(Offered):
    """A proposal entered a cell of its island."""

    kind: ClassVar = EventKind.ADMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Offered):
    """A proposal was offered to a cell, and the cell kept its occupants, or stayed empty.

    Attributes:
      clone_of: The elite of the island with the same metrics, where a clone would have opened a
        cell; None where the cell kept its occupants.
    """

    kind: ClassVar = EventKind.REFUSED
    clone_of: ProgramId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A proposal settled without being offered to a cell.

    Attributes:
      program: None where the operator made none.
      role: The role of the model that wrote the program.
    """

    proposal: int
    island: int
    operator: str
    program: ProgramId | None
    role: Role = Role.GENERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Dropped):
    """A proposal was a duplicate, was not promoted, or was in flight when its run's time ended."""

    kind: ClassVar = EventKind.CUT
    why: CutReason
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Dropped):
    """A proposal failed."""

    kind: ClassVar = EventKind.FAILED
    failure: FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """A child is a candidate for the games of its generation.

    Attributes:
      cohort: The generation.
      parents: The programs it was bred from.
    """

    kind: ClassVar = EventKind.ENTERED
    cohort: int
    island: int
    proposal: int
    program: ProgramId
    parents: tuple[ProgramId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTested:
    """A candidate was measured at a stage before the games.

    Attributes:
      failure: None where it passed.
    """

    kind: ClassVar = EventKind.TESTED
    cohort: int
    program: ProgramId
    stage: str
    failure: FailureKind | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A game ended.

    Attributes:
      game: Number of the game between these two.
      score: Points of `first`, whose opponent has the rest of 1; None for a game that is void.
      moves: As the referee writes them.
      failure: Why the game was cut short; None where it was played out.
      culprit: The player to blame for that; None where none is.
    """

    kind: ClassVar = EventKind.PLAYED
    cohort: int
    first: ProgramId
    second: ProgramId
    game: int
    score: float | None
    moves: tuple[str, ...]
    termination: str
    failure: FailureKind | None
    culprit: ProgramId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """All games of a generation ended.

    Attributes:
      points: Of each player.
      games: Games of each player that count.
    """

    kind: ClassVar = EventKind.SCORED
    cohort: int
    island: int
    points: Mapping[ProgramId, float]
    games: Mapping[ProgramId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A generation ended.

    Attributes:
      podium: The champion and the runner-up, from which the next generation is bred.
    """

    kind: ClassVar = EventKind.CLOSED
    cohort: int
    island: int
    podium: tuple[ProgramId, ...]


Settling: TypeAlias = Admitted | Refused | Cut | Failed
"""Every proposal settles with exactly one of these."""
Fact: TypeAlias = (
    Started
    | Resumed
    | Paused
    | Changed
    | Directed
    | Settling
    | Entered
    | GateTested
    | Played
    | Scored
    | Closed
    | Founded
    | Improved
    | Crowned
    | Rerated
    | Noticed
    | Moved
    | Regridded
    | Validated
    | Finished
    | Cancelled
    | Broken
)
SETTLING = (EventKind.ADMITTED, EventKind.REFUSED, EventKind.CUT, EventKind.FAILED)

_FACTS: Mapping[EventKind, type[Fact]] = {fact.kind: fact for fact in get_args(Fact)}
_FIELDS: Mapping[EventKind, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(fact)) for kind, fact in _FACTS.items()
}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "cell": lambda cell: None if cell is None else tuple(cell),
    "axes": lambda axes: tuple(map(axis_of, axes)),
    "fitness": lambda fitness: None if fitness is None else float(fitness),
    "role": Role,
    "failure": lambda kind: None if kind is None else FailureKind(kind),
    "parents": tuple,
    "moves": tuple,
    "podium": tuple,
    "why": CutReason,
}
"""Fields whose values are not JSON values, and how each is read from one.

Postgres returns a large float of a JSON document as an integer.
"""


@dataclass(frozen=True, slots=True)
class Event:
    """One fact in its place.

    Attributes:
      seq: 1, 2, 3 … within the run.
      seconds: After the run's creation.
    """

    seq: int
    seconds: float
    fact: Fact

    @property
    def kind(self) -> EventKind:
        return self.fact.kind

    @property
    def data(self) -> dict[str, Any]:
        """The fact as it is stored."""
        return document(self.fact)


def document(fact: Fact) -> dict[str, Any]:
    """Returns the fields of a fact as JSON values; without a `role` or `clone_of` by default."""
    values = {name: getattr(fact, name) for name in _FIELDS[fact.kind]}
    if "axes" in values:
        values["axes"] = tuple(asdict(axis) for axis in values["axes"])
    if values.get("role") is Role.GENERATOR:
        del values["role"]
    if values.get("clone_of", "") is None:
        del values["clone_of"]
    return values


def read_fact(kind: EventKind, data: Mapping[str, Any]) -> Fact:
    """Returns the fact of which `document` made `data`."""
    read = {name: reader(data[name]) for name, reader in _READERS.items() if name in data}
    return _FACTS[kind](**{**data, **read})


def stalled_for(improvements: Sequence[Improved], settled: int, threshold: float) -> int:
    """Returns how many proposals have settled since the best last rose by at least `threshold`.

    Args:
      improvements: The run's, oldest first.
      settled: Proposals settled by now.
      threshold: Smaller rises add up but do not count alone; >= 0.  A new best that is less fit
        counts always: it was measured at more stages than the best before.  So does every new
        champion, whose fitness is not comparable with that of the champion before.
    """
    counted_at, counted = 0, None
    for improved in improvements:
        fitness = improved.fitness
        crowned = isinstance(improved, Crowned)
        if crowned or counted is None or fitness < counted or fitness - counted >= threshold:
            counted_at, counted = improved.settled, fitness
    return settled - counted_at
