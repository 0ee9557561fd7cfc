"""Online bin packing in two stages: few small instances for all programs, large ones for the best.

The environment has the capacity of a bin and the seed of the instances: CAPACITY and SEED.
"""

import importlib.util
import os
import random

CAPACITY = int(os.environ.get("CAPACITY", "100"))
SEED = int(os.environ.get("SEED", "42"))
CHEAP, FULL = (4, 10, 20), (10, 50, 100)
"""Number of instances, and the fewest and most items of one."""


def instances(kind):
    """Returns the sizes of the items of each instance, from a fifth to seven tenths of a bin."""
    count, fewest, most = kind
    rng = random.Random(f"{SEED}/{kind}")
    low, high = max(1, CAPACITY // 5), max(1, 7 * CAPACITY // 10)
    return [
        [rng.randint(low, high) for _ in range(rng.randint(fewest, most))] for _ in range(count)
    ]


def bins_used(score_bin, items):
    """Packs the items in their order, each into the bin with the highest score."""
    rooms = []
    for item in items:
        fitting = [number for number, room in enumerate(rooms) if room >= item]
        if fitting:
            scores = [float(score_bin(item, rooms[n], n, CAPACITY)) for n in fitting]
            if not all(abs(score) < float("inf") for score in scores):
                raise ValueError(f"a score is not finite: {scores}")
            rooms[fitting[scores.index(max(scores))]] -= item
        else:
            rooms.append(CAPACITY - item)
    return len(rooms)


def measured(program_path, kind):
    """Returns the negative mean number of bins, and the bins above the sum of the sizes."""
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    packed = [(bins_used(program.score_bin, items), items) for items in instances(kind)]
    mean = sum(bins for bins, _ in packed) / len(packed)
    least = sum(-(-sum(items) // CAPACITY) for _, items in packed) / len(packed)
    return {"combined_score": -mean, "score": -mean, "excess": mean / least - 1.0}


def evaluate_stage1(program_path):
    return measured(program_path, CHEAP)


def evaluate_stage2(program_path):
    return measured(program_path, FULL)


def evaluate(program_path):
    return evaluate_stage2(program_path)
