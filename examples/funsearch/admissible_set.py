"""Finds large admissible sets I(n, w): vectors of n numbers 0, 1 and 2 with w that are not 0.

For any three different vectors of the set there is a coordinate at which their three numbers are
{0, 1, 2} or {0, 0, 1} or {0, 0, 2}. Such sets build cap sets in many dimensions.
"""

import itertools

import funsearch

ALLOWED = {(0, 0, 1), (0, 0, 2), (0, 1, 2)}


@funsearch.run
def evaluate(n: int, w: int) -> int:
    """Returns the size of the admissible set that the priorities lead to."""
    return len(solve(n, w))


def solve(n: int, w: int) -> list[tuple[int, ...]]:
    """Returns an admissible set of n-vectors of weight w."""
    vectors = [v for v in itertools.product((0, 1, 2), repeat=n) if n - v.count(0) == w]
    vectors.sort(key=lambda vector: -priority(vector, n, w))
    taken: list[tuple[int, ...]] = []
    for vector in vectors:
        if all(admissible(vector, a, b) for a, b in itertools.combinations(taken, 2)):
            taken.append(vector)
    return taken


def admissible(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> bool:
    """Returns whether three vectors may be in one set."""
    return any(tuple(sorted(at)) in ALLOWED for at in zip(a, b, c, strict=True))


@funsearch.evolve
def priority(el: tuple[int, ...], n: int, w: int) -> float:
    """Returns the priority with which a vector enters the set; higher is earlier.

    el is a tuple of n numbers 0, 1 and 2, of which w are not 0.
    """
    return 0.0
