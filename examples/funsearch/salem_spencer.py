"""Finds large Salem-Spencer sets: sets of numbers below n without three in arithmetic progression.

The largest have 4, 5, 8, 9, 11, 13 and 20 numbers for n = 5, 9, 14, 20, 24, 30 and 54.
"""


# @funsearch.run
def evaluate(n):
    """Returns the size of the set that the priorities lead to."""
    taken = []
    for number in sorted(range(n), key=lambda number: -priority(number, n)):
        # number may be the first, the middle or the last of a progression of three.
        free = all(
            2 * other - number not in taken
            and (number + other) % 2 * n + (number + other) // 2 not in taken
            for other in taken
        )
        if free:
            taken.append(number)
    return len(taken)


# @funsearch.evolve
def priority(el, n):
    """Returns the priority with which the number el, 0 <= el < n, enters the set."""
    return -el
