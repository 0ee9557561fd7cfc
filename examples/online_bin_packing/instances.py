"""Instances of bin packing: drawn, or read from files in the formats they are published in."""

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SHUFFLE_SEED = 1


@dataclass(frozen=True)
class Instance:
    """Sizes in the order of arrival, as whole numbers from 1 to `capacity`."""

    name: str
    capacity: int
    sizes: np.ndarray

    def __post_init__(self):
        if not len(self.sizes) or self.sizes.min() < 1 or self.sizes.max() > self.capacity:
            raise ValueError(f"{self.name}: sizes must be from 1 to {self.capacity}, at least one")

    @property
    def lower_bound(self):
        """No packing has fewer bins: the sum of the sizes over the capacity, rounded up."""
        return -(-int(self.sizes.sum()) // self.capacity)


def uniform(name, seed, count, size):
    """Returns instances of OR-Library's uniform class: capacity 150, whole sizes from 20 to 100."""
    rng = random.Random(f"{name}/{seed}")
    return [
        Instance(f"{name} {n}", 150, np.array([rng.randint(20, 100) for _ in range(size)]))
        for n in range(count)
    ]


def weibull(name, seed, count, size):
    """Returns instances of FunSearch's class: capacity 100, Weibull sizes of scale 45 and shape 3.

    Sizes are cut to whole numbers, as the mean of the published instances says, not rounded, as
    the paper does.
    """
    rng = random.Random(f"{name}/{seed}")
    return [
        Instance(f"{name} {n}", 100, np.array([_weibull_size(rng) for _ in range(size)]))
        for n in range(count)
    ]


def _weibull_size(rng):
    return min(max(int(rng.weibullvariate(45, 3)), 1), 100)


def read(path):
    """Returns the instances of an OR-Library text file, or of FunSearch's or EoH's JSON."""
    path = Path(path)
    try:
        text = path.read_text()
        found = _from_json(json.loads(text)) if path.suffix == ".json" else _from_or_library(text)
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RuntimeError) as error:
        what = "neither an OR-Library binpack file nor FunSearch's or EoH's .json"
        raise ValueError(f"{path.name}: {what} ({type(error).__name__}: {error})") from error
    if not found:
        raise ValueError(f"{path.name}: no instance found")
    return found


def _from_or_library(text):
    """Reads a count, then for each instance its name, `capacity n best_known` and n sizes.

    `best_known` is not used: public copies of the files disagree about it.  Where sizes have a
    decimal (the triplets), capacity and sizes are taken times ten, for exact sums, and the items
    are shuffled with a fixed seed: in the order of the files they come in threes that fill a bin.
    """
    words = iter(text.split())
    found = []
    for _ in range(int(next(words))):
        name, capacity, count, _ = (next(words) for _ in range(4))
        sizes = [next(words) for _ in range(int(count))]
        if any("." in size for size in [capacity, *sizes]):
            capacity, *sizes = (round(float(size) * 10) for size in [capacity, *sizes])
            random.Random(SHUFFLE_SEED).shuffle(sizes)
        found.append(Instance(name, int(capacity), np.array([int(size) for size in sizes])))
    return found


def _from_json(loaded):
    """Reads `{name: {capacity, items}}`, or EoH's list of size lists with capacity 100."""
    if "instances" in loaded:
        lists = loaded["instances"]
        capacity = min(loaded.get("capacities_evaluated", [100]))
        return [Instance(f"{n}", capacity, _whole(sizes)) for n, sizes in enumerate(lists)]
    return [
        Instance(name, int(entry["capacity"]), _whole(entry["items"]))
        for name, entry in loaded.items()
    ]


def _whole(sizes):
    if any(not math.isfinite(size) or int(size) != size for size in sizes):
        raise ValueError("sizes must be whole numbers")
    return np.array([int(size) for size in sizes])
