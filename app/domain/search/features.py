"""Features: measurements of a program's own text that place it in a feature grid.

OpenEvolve's three built-in dimensions.  A metric of the same name from the evaluator wins over a
built-in; that choice is made by whoever reads the evaluation.
"""

from collections.abc import Sequence
from statistics import fmean

from app.domain.program import Program

COMPLEXITY = "complexity"
DIVERSITY = "diversity"
SCORE = "score"

BUILT_IN = frozenset({COMPLEXITY, DIVERSITY, SCORE})
"""Axes that need no metric of that name."""


def distance(one: Program, other: Program) -> float:
    """Returns how unlike two texts are, at least 0; a cheap heuristic, not an edit distance.

    Source: OpenEvolve 0.4.0's diversity heuristic: 0.1 a character of length, 10 a line, 0.5 a
    character that only one of the two uses.
    """
    length = abs(len(one.source) - len(other.source))
    lines = abs(one.source.count("\n") - other.source.count("\n"))
    letters = len(set(one.source) ^ set(other.source))
    return 0.1 * length + 10.0 * lines + 0.5 * letters


def built_in(axis: str, program: Program, fitness: float, seeds: Sequence[Program]) -> float | None:
    """Returns the value of a built-in axis, or None if there is no built-in of that name.

    `diversity` is the mean distance to the problem's seeds, at least one.  Departure from
    OpenEvolve, whose reference set grows while the run goes on, so that a value there depends on
    when it was computed.
    """
    match axis:
        case "complexity":
            return float(len(program.source))
        case "diversity":
            return fmean(distance(program, seed) for seed in seeds)
        case "score":
            return fitness
        case _:
            return None
