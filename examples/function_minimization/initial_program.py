"""Searching for the lowest point of a function of two variables that has many valleys."""

import math
import random


def objective(x, y):
    return math.sin(x) * math.cos(y) + math.sin(x * y) + (x * x + y * y) / 20.0


# EVOLVE-BLOCK-START
def search(low, high):
    """Returns the best point found, (x, y): anywhere first, then ever nearer to the best."""
    best = (random.uniform(low, high), random.uniform(low, high))
    reach = 5.0
    for _ in range(60):
        x = min(max(best[0] + reach * random.uniform(-1.0, 1.0), low), high)
        y = min(max(best[1] + reach * random.uniform(-1.0, 1.0), low), high)
        if objective(x, y) < objective(*best):
            best = (x, y)
        reach = max(reach * 0.9, 0.5)
    return best


# EVOLVE-BLOCK-END


def run_search():
    """Returns (x, y, value)."""
    x, y = search(-5.0, 5.0)
    return x, y, objective(x, y)
