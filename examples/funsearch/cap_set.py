"""Finds large cap sets: sets of vectors in n dimensions over {0, 1, 2} without three on a line.

On every line one vector is the sum of the other two, negated modulo 3. Vectors are taken in the
order of their priority, and each one that is taken rules out those that would close a line.
The largest known cap sets have 2, 4, 9, 20, 45, 112, 236 and 512 vectors for n = 1 to 8.
"""

import itertools

import funsearch


@funsearch.run
def evaluate(n: int) -> int:
    """Returns the size of the cap set that the priorities lead to."""
    return len(solve(n))


def solve(n: int) -> list[tuple[int, ...]]:
    """Returns a cap set in n dimensions."""
    vectors = list(itertools.product((0, 1, 2), repeat=n))
    ranked = sorted(vectors, key=lambda vector: -priority(vector, n))
    taken: list[tuple[int, ...]] = []
    closed: set[tuple[int, ...]] = set()
    for vector in ranked:
        if vector not in closed:
            closed.update(third(vector, other) for other in taken)
            closed.add(vector)
            taken.append(vector)
    return taken


def third(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the vector on the line through two others."""
    return tuple((-x - y) % 3 for x, y in zip(a, b, strict=True))


@funsearch.evolve
def priority(el: tuple[int, ...], n: int) -> float:
    """Returns the priority with which a vector enters the cap set; higher is earlier.

    el is a tuple of n numbers 0, 1 and 2.
    """
    return 0.0
