"""The archive: islands of cells, and the one rule by which a program enters a cell."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple, Protocol, TypeAlias

from app.domain.evaluation import CaseId, Evaluation, behaviour, signature
from app.domain.finite import difference, position, unmarked
from app.domain.problem import Axis
from app.domain.program import ProgramId

CellKey: TypeAlias = tuple[int | float | str, ...]
"""Names a cell; at most 256 bytes of JSON, which the ledger checks."""


class Quality(NamedTuple):
    """What two programs of a run are compared by; the greater one is the better program.

    Fitness is compared only between programs that were measured at equally many stages.

    Attributes:
      stages: 0 for a program that was measured at every stage; -n for one that n stages were left
        out for, because it stayed below a threshold.
    """

    stages: int
    fitness: float

    @property
    def whole(self) -> bool:
        """Whether the program was measured at every stage."""
        return self.stages == 0


@dataclass(frozen=True, slots=True)
class Elite:
    """A program in a cell, with the fitness that earned it the place.

    Attributes:
      length: Characters of source.
      generation: Edits since a seed.
      stages_left: How many stages it was not measured at, because it stayed below a threshold.
      behaviour: Digest of all its scores and metrics, and of the stages that were left out.
    """

    program: ProgramId
    fitness: float
    length: int
    generation: int
    cell: CellKey = ()
    stages_left: int = 0
    behaviour: str = ""

    @property
    def quality(self) -> Quality:
        return Quality(-self.stages_left, self.fitness)


@dataclass(frozen=True, slots=True)
class Cell:
    """A niche and its occupants, best first."""

    key: CellKey
    occupants: tuple[Elite, ...] = ()

    @property
    def best(self) -> Elite:
        return self.occupants[0]


class Bred(NamedTuple):
    """An elite and how many proposals have it as their first parent.

    Attributes:
      duplicates: How many of those the run had already, and cut.
    """

    elite: Elite
    children: int
    duplicates: int = 0


class IslandView(Protocol):
    """What a strategy may ask of an island; every answer costs a bounded read.

    Attributes:
      epoch: How often the island has been reset.  A child of an earlier epoch may not enter.
      admitted: How many programs have entered since the last reset.
    """

    @property
    def index(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def admitted(self) -> int: ...
    @property
    def size(self) -> int:
        """The number of occupied cells."""
        ...

    @property
    def barren(self) -> int:
        """How many cohorts in a row, up to now, settled without an admitted proposal.

        Counted among the island's share of the run's newest 1,000 settled proposals.
        """
        ...

    def recent(self, stage: str, n: int) -> tuple[float, ...]:
        """Returns the fitness of the `n` programs that were measured last at a stage, newest first.

        It is that of the stage alone: the mean over its trials.
        """
        ...

    def scores(self, programs: Sequence[ProgramId]) -> Mapping[ProgramId, Mapping[CaseId, float]]:
        """Returns the scores of elites by case; later measurements override earlier ones."""
        ...

    def best(self, n: int, skip: int = 0) -> tuple[Elite, ...]:
        """Returns up to `n` elites, best quality first, after `skip` others; ties: older first."""
        ...

    def bred(self, n: int, most: int) -> tuple[Bred, ...]:
        """Returns what `best` returns, with the children of each, counted up to `most`.

        A child counts on whichever island it was bred, and however it ended.
        """
        ...

    def elite(self, program: ProgramId) -> Elite | None:
        """Returns a program's place in a cell; None where it has none."""
        ...

    def twin(self, elite: Elite) -> Elite | None:
        """Returns another program's elite with the same behaviour; None where there is none."""
        ...

    def uniform(self, n: int, rng: Random) -> tuple[Elite, ...]:
        """Returns the best of up to `n` distinct cells, each cell equally likely."""
        ...

    def heads(self, n: int, skip: int = 0) -> tuple[Elite, ...]:
        """Returns the best of up to `n` cells, best quality first, after `skip` others.

        Ties: the older cell first.
        """
        ...

    def cell(self, key: CellKey) -> Cell:
        """Returns a cell, empty if it has no occupants."""
        ...


@dataclass(frozen=True, slots=True)
class Entrant:
    """A program that is offered to the archive, with its evaluations, in order.

    Attributes:
      stages_left: See `Elite`.
    """

    program: ProgramId
    fitness: float
    length: int
    generation: int
    evaluations: tuple[Evaluation, ...]
    stages_left: int = 0

    @property
    def quality(self) -> Quality:
        return Quality(-self.stages_left, self.fitness)

    @property
    def features(self) -> dict[str, float]:
        """Features by axis name, later evaluations overriding earlier ones."""
        merged: dict[str, float] = {}
        for evaluation in self.evaluations:
            merged.update(evaluation.features.get(self.program, {}))
        return merged

    def elite(self, key: CellKey) -> Elite:
        return Elite(
            self.program,
            self.fitness,
            self.length,
            self.generation,
            key,
            self.stages_left,
            f"{behaviour(self.program, self.evaluations)}-{self.stages_left}",
        )


Niche: TypeAlias = Callable[[Entrant], CellKey]
"""Names the cell a program belongs to."""

Occupancy: TypeAlias = Callable[[Cell, Elite], Cell]
"""Returns a cell with an entrant among its occupants; the same cell means that it is refused."""


def best(capacity: int = 1) -> Occupancy:
    """Returns the rule that keeps the `capacity` best by quality, incumbents winning ties.

    An entrant already in the cell replaces its own record if its quality has changed, which is how
    a re-rated program moves up or down.
    """
    return _foremost(capacity, lambda elite: elite.quality)


def shortest(capacity: int) -> Occupancy:
    """Returns the rule of FunSearch's clusters: of equal quality, the `capacity` shortest stay."""
    return _foremost(capacity, lambda elite: (elite.quality, -elite.length))


def _foremost(capacity: int, rank: Callable[[Elite], tuple[Any, ...]]) -> Occupancy:

    def occupancy(cell: Cell, entrant: Elite) -> Cell:
        same = [e for e in cell.occupants if e.program == entrant.program]
        if any(e.quality == entrant.quality for e in same):
            return cell
        others = [elite for elite in cell.occupants if elite.program != entrant.program]
        ranked = sorted([*others, entrant], key=rank, reverse=True)
        kept = tuple(ranked[:capacity])
        return cell if kept == cell.occupants else replace(cell, occupants=kept)

    return occupancy


def bin_index(axis: Axis, value: float) -> int:
    """Returns which of the axis' equal bins holds `value`, clipped at both ends: 0 … bins - 1.

    Raises:
      ValueError: The axis has no range yet.
    """
    if axis.low is None or axis.high is None:
        raise ValueError(f"axis {axis.name!r} has no range")
    return min(int(position(value, axis.low, axis.high) * axis.bins), axis.bins - 1)


def grid(axes: Sequence[Axis]) -> Niche:
    """Returns the MAP-Elites niche: one bin index per axis, in the order of `axes`.

    A program that stopped before the stage that measures an axis belongs to the axis' first bin.

    Source: Mouret & Clune 2015, "Illuminating search spaces by mapping elites", algorithm 1.
    """

    def niche(entrant: Entrant) -> CellKey:
        features = entrant.features
        missing = [axis.name for axis in axes if axis.name not in features]
        if missing and not entrant.stages_left:
            raise ValueError(
                f"no evaluation of {entrant.program[:8]} measured the axes {missing}; "
                f"it measured {sorted(features)}"
            )
        return tuple(
            bin_index(axis, features[axis.name]) if axis.name in features else 0 for axis in axes
        )

    return niche


PROPOSALS_A_CELL, PROPOSALS_AN_ISLAND, MOST_ISLANDS = 5, 500, 5
"""Proposals of the budget for each cell and each island of a run, where no setting has them.

More cells than that, and programs enter without meeting an occupant; more islands, and each has
too few generations.
"""


MOST_UNLEARNT = 50
"""Evaluations after which the ranges of axes are learnt in a run of any budget."""


def islands_for(proposals: int) -> int:
    """Returns how many islands suit a budget."""
    return min(max(1, proposals // PROPOSALS_AN_ISLAND), MOST_ISLANDS)


def learnt_after(proposals: int) -> int:
    """Returns after how many evaluations the ranges of axes are learnt, in a budget.

    Ranges drawn from the seeds put most programs into few cells, where only the best stays; so a
    small run, too, has to be mostly ahead when they are learnt.
    """
    return min(MOST_UNLEARNT, max(1, proposals // PROPOSALS_A_CELL))


def scaled(axes: Sequence[Axis], islands: int, proposals: int) -> tuple[Axis, ...]:
    """Returns the axes of a run; those without a declared number of bins have equally many.

    All cells of all islands together are at most one for each `PROPOSALS_A_CELL` proposals, unless
    two bins on each such axis are more; an axis has at most as many bins as it had before.
    """
    free = sum(axis.scaled for axis in axes)
    declared = math.prod(axis.bins for axis in axes if not axis.scaled)
    bins = 2
    while free and islands * declared * (bins + 1) ** free * PROPOSALS_A_CELL <= proposals:
        bins += 1
    return tuple(
        replace(axis, bins=min(axis.bins, bins), scaled=False) if axis.scaled else axis
        for axis in axes
    )


def learnt(
    axes: Sequence[Axis], entrants: Sequence[Mapping[str, float]], *, provisional: bool = False
) -> tuple[Axis, ...]:
    """Returns `axes` with every open range closed over the features seen, a tenth wider each way.

    A range that is provisional counts as open.  A feature that never varied gets a range as wide as
    its value is large, so that every later value still has a bin.  No range is learnt from a number
    that stands for no measurement (`unmarked`); it has the last bin, or the first.

    Args:
      axes: The grid so far.
      entrants: Features by name, one mapping a program.
      provisional: Whether the new ranges are to be learnt again later.
    """

    def closed(axis: Axis) -> Axis:
        if axis.ranged and not axis.provisional:
            return axis
        seen = unmarked(_seen(axis, entrants))
        if not seen:
            return replace(axis, low=0.0, high=1.0, provisional=provisional)
        low, high = min(seen), max(seen)
        margin = difference(high, low) / 10 or max(abs(low), 1.0) / 2
        low, high = difference(low, margin), difference(high, -margin)
        return replace(axis, low=low, high=high, provisional=provisional)

    return tuple(closed(axis) for axis in axes)


def left_out(axis: Axis, entrants: Sequence[Mapping[str, float]]) -> int:
    """Returns how many features are marks, which `learnt` learns no range from."""
    seen = _seen(axis, entrants)
    return len(seen) - len(unmarked(seen))


def _seen(axis: Axis, entrants: Sequence[Mapping[str, float]]) -> list[float]:
    return [features[axis.name] for features in entrants if axis.name in features]


def by_signature(entrant: Entrant) -> CellKey:
    """The niche of FunSearch: programs that score alike on every case share a cluster.

    The key is a digest of the scores: a key of hundreds of scores would not fit into an index.
    """
    scores = signature(entrant.program, entrant.evaluations)
    return (hashlib.sha256(repr(scores).encode()).hexdigest()[:16],)


def by_generation(entrant: Entrant) -> CellKey:
    """The niche of a beam: one cell a level."""
    return (entrant.generation,)


def everyone_together(entrant: Entrant) -> CellKey:  # noqa: ARG001  the signature of a Niche
    """The niche of searches that keep a single ranking."""
    return ()
