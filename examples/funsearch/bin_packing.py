### SYSTEM PROMPT
"""You improve heuristics for online bin packing: items arrive one by one, and each is put into a
bin before the next one is seen. The fewer bins, the better."""

### END SYSTEM PROMPT
"""Finds heuristics for online bin packing: a priority for each bin with room for the item."""

import random

import funsearch

CAPACITY = 150


@funsearch.run
def evaluate(seed: int) -> float:
    """Returns the negative number of bins for 120 items with sizes from 20 to 100."""
    draw = random.Random(seed)
    items = [draw.randint(20, 100) for _ in range(120)]
    return -float(len(packed(items)))


def packed(items: list[int]) -> list[int]:
    """Returns the room left in each bin that was opened."""
    rooms: list[int] = []
    for item in items:
        fitting = [index for index, room in enumerate(rooms) if room >= item]
        offered = [rooms[index] for index in fitting] + [CAPACITY]
        priorities = list(priority(item, offered))
        best = max(range(len(offered)), key=priorities.__getitem__)
        if best == len(fitting):
            rooms.append(CAPACITY - item)
        else:
            rooms[fitting[best]] -= item
    return rooms


@funsearch.evolve
def priority(item: int, bins: list[int]) -> list[float]:
    """Returns the priority of each bin that the item fits into; the highest one is taken.

    bins holds the room left in each of these bins; the last one is a new, empty bin.
    """
    return [-float(room - item) for room in bins]
