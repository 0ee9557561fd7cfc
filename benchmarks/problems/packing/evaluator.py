"""Scores a priority for online bin packing: the lower bound of the bins over the bins in use.

Ten drawn instances of 500 items (capacity 150, sizes from 20 to 100): with two of 100, most
searches ended at one of two values.  A bin with room counts for slightly less than a full one, so
that programs with as many bins differ.  Of 80 single edits of the initial program, 13 are better.
"""

import importlib.util
import math
from random import Random

CAPACITY, LEAST, LARGEST, INSTANCES, ITEMS = 150, 20, 100, 10, 500
SIZES, GAPS = range(LEAST, LARGEST + 1), range(CAPACITY + 1)
_rng = Random("bins")
TRAINING = [[_rng.randint(LEAST, LARGEST) for _ in range(ITEMS)] for _ in range(INSTANCES)]


def bins_of(items, preferred):
    """Returns how many open bins have each gap at the end; `preferred` is by size, best first."""
    bins = [0] * (CAPACITY + 1)
    for item in items:
        gap = next((gap for gap in preferred[item] if bins[gap]), CAPACITY)
        bins[gap] -= bool(bins[gap])
        bins[gap - item] += 1
    return bins


def score(program):
    table = program.priorities(list(SIZES), list(GAPS))
    preferred = {}
    for size, worths in zip(SIZES, table, strict=True):
        if any(math.isnan(worth) for worth in worths):
            raise ValueError(f"a priority of an item of {size} is not a number")
        ranked = sorted(zip(worths, GAPS, strict=True), reverse=True)
        preferred[size] = [gap for _, gap in ranked if gap >= size]
    used = least = 0.0
    for items in TRAINING:
        bins = bins_of(items, preferred)
        used += sum(bins) - sum(n * (gap / CAPACITY) ** 2 for gap, n in enumerate(bins)) / 10
        least += math.ceil(sum(items) / CAPACITY)
    return {"combined_score": least / used}


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return score(program)
