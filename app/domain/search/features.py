"""Features: measurements of a program's text that place it in a feature grid.

These are OpenEvolve's three built-in dimensions.  A metric of the evaluator with the same name
takes precedence; the reader of the evaluation applies this rule.
"""

from collections.abc import Callable, Mapping, Sequence

from app.domain.finite import mean
from app.domain.program import Program

COMPLEXITY = "complexity"
DIVERSITY = "diversity"


def distance(program: Program, other: Program) -> float:
    """Returns the distance of two texts, at least 0; a cheap heuristic, not an edit distance.

    Source: OpenEvolve 0.4.0's diversity heuristic: 0.1 for each character of difference in length,
    10 for each line, 0.5 for each distinct character that only one of them contains.
    """
    ours, theirs = program.text, other.text
    length = abs(len(ours) - len(theirs))
    lines = abs(ours.count("\n") - theirs.count("\n"))
    letters = len(set(ours) ^ set(theirs))
    return 0.1 * length + 10.0 * lines + 0.5 * letters


def _length(program: Program, fitness: float, seeds: Sequence[Program]) -> float:  # noqa: ARG001
    return float(program.length)


def _distance_to_seeds(program: Program, fitness: float, seeds: Sequence[Program]) -> float:  # noqa: ARG001
    """Returns the mean distance to the problem's seeds.

    Departure from OpenEvolve, whose reference set grows during the run, so that a value depends on
    the time of its computation.
    """
    return mean(distance(program, seed) for seed in seeds)


def _fitness(program: Program, fitness: float, seeds: Sequence[Program]) -> float:  # noqa: ARG001
    return fitness


BUILT_IN: Mapping[str, Callable[[Program, float, Sequence[Program]], float]] = {
    COMPLEXITY: _length,
    DIVERSITY: _distance_to_seeds,
    "score": _fitness,
}
"""Axis that needs no metric to its value, by program, fitness and the problem's seeds."""
