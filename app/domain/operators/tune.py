"""The operator `tune`: an optimiser moves the numbers of the parent.

The parent is the fittest program of its island whose skeleton still progresses.  No state of the
optimiser is stored: the measured points are read from the ledger each time.  Programs with the same
skeleton, which differ in numbers only, are points of one space and make up a family.  A parent
without numbers is mutated instead.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import log
from random import Random
from typing import NamedTuple, TypeAlias

from app.domain.evaluation import Failure
from app.domain.operator import (
    Aim,
    Brief,
    Child,
    Conversation,
    Draft,
    MeasuredPoint,
    Operator,
    Point,
    Population,
    ProgramRecord,
)
from app.domain.operators.experience import EXPERIENCE
from app.domain.operators.mutate import mutated, unreadable
from app.domain.program import Program, parses
from app.domain.replies.children import as_child
from app.domain.source.sites import Site, SourceTree, sites
from app.domain.source.syntax import literal, number, with_replaced

POINTS = 128
_DIMENSIONS = 40
"""Most numbers of a tuned space; a few dozen points carry no information about a larger one."""
_UNIT_SHARE = 0.3
"""One unit of the optimiser's space, as a share of a number's size."""
_ATTEMPTS = 4
_LARGEST = 1e300
"""Bound of the numbers that are tuned; a larger integer may have no floating-point value."""
_ELITES = 8
"""Elites that are candidates for the parent; each one that is looked at is parsed."""
_GENERATIONS = 3
"""Generations of CMA-ES without progress, after which the next skeleton has its turn."""


_CRASHES = 0.2
"""The share of a family that crashed, from which on its numbers go further one at a time."""
_CAUTION = 3.0
"""How fast a direction in which programs crashed is drawn less often."""


class _Direction(NamedTuple):
    """One of the numbers of a family, and whether it grows."""

    number: int
    up: bool


@dataclass(frozen=True, slots=True)
class RatedPoint:
    """A point of the optimiser's space with a fitness."""

    numbers: tuple[float, ...]
    fitness: float


@dataclass(frozen=True, slots=True)
class PointRequest:
    """A request for one more point.

    Attributes:
      dimensions: At least one.  The parent is the origin; a unit is a sensible first step.
      history: Points in that space, oldest first; contains the parent if its fitness is known, and
        programs that crashed with the fitness of the least fit.
      seed: Of the optimiser's random choices; 0 <= seed < 2**32.
    """

    dimensions: int
    history: tuple[RatedPoint, ...]
    seed: int


Optimiser: TypeAlias = Callable[[PointRequest], tuple[float, ...]]
"""A pure function: equal requests give equal points."""


def tuner(optimiser: Optimiser) -> Operator:
    """Returns the operator `tune` with this optimiser."""

    def converse(brief: Brief) -> Conversation:
        yield from ()
        return [tuned(brief, draft, optimiser) for draft in brief.drafts]

    return Operator(
        "tune",
        converse,
        asks_model=False,
        aim=best_skeleton,
        family=family,
        reads=replace(EXPERIENCE, points=POINTS),
        language="python",
    )


def best_skeleton(population: Population, rng: Random) -> Aim | None:  # noqa: ARG001
    """Returns the fittest elite whose skeleton still progresses; None if none of the fittest does.

    A skeleton has stalled when so many of its children as fill a few generations of CMA-ES were
    made after its fittest elite.
    """
    elites = population.island.best(_ELITES)
    programs = population.programs([elite.program for elite in elites])
    seen: set[str] = set()
    for elite in elites:
        for view in programs[elite.program].views():
            name = family(view)
            if not name or name in seen:
                continue
            seen.add(name)
            patience = _patience(min(len(numbers(view)), _DIMENSIONS))
            if population.born_since(name, elite.program, patience) < patience:
                return Aim(elite.program, elite.generation + 1)
    return None


def _patience(dimensions: int) -> int:
    """Returns after how many children without progress a skeleton has stalled.

    Source: Hansen 2016, "The CMA evolution strategy: a tutorial", table 1, for the population size.
    """
    return _GENERATIONS * (4 + int(3 * log(dimensions)))


def family(program: Program) -> str:
    """Returns a digest of a program's skeleton; "" for a program that cannot be tuned.

    Of several files, the skeleton is that of the one in focus, beside the others as they are.
    """
    if not parses(program):
        return ""
    source = SourceTree.of(program.source)
    beside = "".join(f"{file.path} {file.digest}\n" for file in program.others)
    whole = f"{_skeleton(source)}{beside}".encode()
    return sha256(whole).hexdigest()[:16] if _tunable(source) else ""


def tuned(brief: Brief, draft: Draft, optimiser: Optimiser) -> Child:
    """Returns a draft's parent with its numbers moved to the point that the optimiser chooses."""
    record = brief.parent(draft)
    parent = record.program
    failure = unreadable(parent, "The operator 'tune' reads")
    if failure is not None:
        return failure
    origin = numbers(parent)
    if not origin:
        # A mutation may add numbers.
        return mutated(brief, draft)
    rng = brief.rng(f"tune/{draft.ordinal}")
    chosen = sorted(rng.sample(range(len(origin)), min(len(origin), _DIMENSIONS)))
    history = _history(brief.points, record, origin, chosen)
    name = family(parent)
    # Integers may round to the parent's values.
    for _ in range(_ATTEMPTS):
        request = PointRequest(len(chosen), history, rng.getrandbits(32))
        moved = _placed(origin, chosen, optimiser(request))
        values = _cautious(moved, origin, brief.points, rng)
        source, note = _rewritten(parent, origin, values)
        child = as_child(source, parent, brief.edit, note)
        if not isinstance(child, Failure):
            return replace(child, point=Point(name, tuple(map(float, values))))
    return mutated(brief, draft)


def tunable_numbers(program: Program) -> int:
    """Returns how many numbers of a program may be tuned; 0 for one that is not Python."""
    return len(numbers(program)) if parses(program) else 0


def numbers(program: Program) -> list[int | float]:
    """Returns the numbers that may be tuned, in the order of the text."""
    return [_value(site) for site in _tunable(SourceTree.of(program.source))]


def skeleton(program: Program) -> str:
    """Returns a text that is equal for programs that differ only in tunable numbers."""
    return _skeleton(SourceTree.of(program.source))


def _skeleton(source: SourceTree) -> str:
    holes: dict[ast.AST, ast.AST] = {
        site.node: ast.Constant(f"tunable {type(_value(site)).__name__}")
        for site in _tunable(source)
    }
    return ast.dump(with_replaced(source.tree, holes))


def _tunable(source: SourceTree) -> list[Site]:
    """Returns the sites of numbers, except positions, sizes, small exponents, 0, 1 and -1."""
    return [
        site
        for site in sites(source)
        if (value := number(site.node)) is not None
        and not site.structural
        and not (site.exponent and float(value).is_integer() and abs(value) <= 3)
        and not (isinstance(value, int) and abs(value) <= 1)
        and abs(value) < _LARGEST
    ]


def _value(site: Site) -> int | float:
    value = number(site.node)
    assert value is not None
    return value


def _unit(value: int | float) -> float:
    """Returns the change of a number by one unit of the optimiser's space."""
    return max(abs(value), 0.3) * _UNIT_SHARE


def _history(
    points: Sequence[MeasuredPoint],
    parent: ProgramRecord,
    origin: Sequence[float],
    chosen: Sequence[int],
) -> tuple[RatedPoint, ...]:
    """Returns points in the optimiser's space, whose origin is the parent; oldest first."""
    measured = [point.fitness for point in points if point.fitness is not None]
    if parent.fitness is not None:
        measured.append(parent.fitness)
    if not measured:
        return ()
    # Only the order counts: a crash ranks with the least fit.
    worst = min(measured)
    history = [
        RatedPoint(
            tuple((point.numbers[n] - origin[n]) / _unit(origin[n]) for n in chosen),
            worst if point.fitness is None else point.fitness,
        )
        for point in reversed(points)
    ]
    if parent.fitness is not None:
        history.append(RatedPoint((0.0,) * len(chosen), parent.fitness))
    return tuple(history)


def _cautious(
    values: Sequence[int | float],
    origin: Sequence[int | float],
    points: Sequence[MeasuredPoint],
    rng: Random,
) -> list[int | float]:
    """Returns values of which at most one is beyond those of measured programs.

    Only where many of the family crash.  A direction in which they crashed is drawn less often.

    Args:
      values: Where the numbers would move.
      origin: The parent's numbers.
      points: Those of its family, with the ones that crashed.
      rng: Draws the number that may go further.
    """
    crashed = [point.numbers for point in points if point.fitness is None]
    if len(crashed) <= _CRASHES * len(points):
        return list(values)
    sound = [origin, *(point.numbers for point in points if point.fitness is not None)]
    bounds = [(min(column), max(column)) for column in zip(*sound, strict=True)]
    blamed: dict[_Direction, float] = {}
    for numbers_ in crashed:
        directions = _beyond(numbers_, bounds)
        for direction in directions:
            blamed[direction] = blamed.get(direction, 0.0) + 1.0 / len(directions)
    risky = _beyond(values, bounds)
    weights = [(1.0 + blamed.get(direction, 0.0)) ** -_CAUTION for direction in risky]
    [further] = rng.choices(risky, weights) if risky else [None]
    return [
        value
        if further is not None and n == further.number
        else type(value)(min(max(value, low), high))
        for n, (value, (low, high)) in enumerate(zip(values, bounds, strict=True))
    ]


def _beyond(values: Sequence[float], bounds: Sequence[tuple[float, float]]) -> "list[_Direction]":
    """Returns the directions in which numbers are outside their bounds."""
    return [
        _Direction(n, value > high)
        for n, (value, (low, high)) in enumerate(zip(values, bounds, strict=True))
        if not low <= value <= high
    ]


def _placed(
    origin: Sequence[int | float], chosen: Sequence[int], vector: Sequence[float]
) -> list[int | float]:
    values = list(origin)
    for n, step in zip(chosen, vector, strict=True):
        before = origin[n]
        moved = before + step * _unit(before)
        values[n] = round(moved) if isinstance(before, int) else float(f"{moved:.6g}")
    return values


def _rewritten(
    parent: Program, origin: Sequence[int | float], values: Sequence[int | float]
) -> tuple[str, str]:
    source = SourceTree.of(parent.source)
    pairs = [
        (site, literal(after))
        for site, before, after in zip(_tunable(source), origin, values, strict=True)
        if before != after
    ]
    moves = [
        f"{before} to {after}"
        for before, after in zip(origin, values, strict=True)
        if before != after
    ]
    return source.replaced(pairs), "numbers moved: " + ", ".join(moves[:12])
