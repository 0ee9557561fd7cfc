"""Scores a `priority` function by how few bins it needs on average.

The score is minus the excess over the lower bound, in per cent: 0 would be perfect.  Drawn
instances train it; others, never part of the score, say what it is worth elsewhere.  Files named in
EVOQ_PROBLEM_DATA (`--set problem.data=PATH`) take the place of the training instances.
"""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from instances import drawn, read

SNUG = 2
"""A gap of at most so many units counts as filled up."""


def training_instances():
    names = [name for name in os.environ.get("EVOQ_PROBLEM_DATA", "").split(os.pathsep) if name]
    folder = Path(__file__).resolve().parent
    if names:
        return [instance for name in names for instance in read(folder / name)]
    return drawn("training", 2024, count=2, size=300)


TRAINING = training_instances()
VALIDATION = drawn("validation", 2025, count=1, size=500)


@dataclass(frozen=True)
class Packing:
    """What a priority function made of one instance.

    Attributes:
      bins: Bins in use at the end.
      snug: Items that filled their bin up to at most `SNUG` units.
    """

    bins: int
    snug: int


def pack(instance, priority):
    """Packs one instance.

    As many bins as there are items exist from the start.  Every bin with room for the item is
    offered, unused ones too, in the order of creation; the first of the highest priority gets it.
    """
    rooms = np.full(len(instance.sizes), float(instance.capacity))
    snug = 0
    for size in instance.sizes.astype(float).tolist():
        fitting = np.flatnonzero(rooms >= size)
        priorities = np.asarray(priority(size, rooms[fitting]))
        if priorities.shape != fitting.shape or priorities.dtype.kind not in "biuf":
            raise ValueError(
                f"priority must return one number a bin, an array of shape {fitting.shape}, "
                f"not {priorities.dtype} of shape {priorities.shape}"
            )
        chosen = int(np.argmax(priorities))  # NaN, where there is one
        if not np.isfinite(priorities[chosen]):
            raise ValueError(f"the highest priority is not finite: {priorities[chosen]}")
        rooms[fitting[chosen]] -= size
        snug += rooms[fitting[chosen]] <= SNUG
    return Packing(int(np.count_nonzero(rooms < instance.capacity)), int(snug))


def excess_percent(instances, packings):
    """Returns the excess of mean bins over the mean lower bound: a ratio of means, in per cent."""
    bins = sum(packing.bins for packing in packings)
    least = sum(instance.lower_bound for instance in instances)
    return 100.0 * (bins - least) / least


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    priority = program.priority

    training = [pack(instance, priority) for instance in TRAINING]
    validation = [pack(instance, priority) for instance in VALIDATION]

    excess = excess_percent(TRAINING, training)
    items = sum(len(instance.sizes) for instance in TRAINING)
    pairs = zip(TRAINING, training, strict=True)
    return {
        "combined_score": -excess,
        "excess": excess,
        "validation_excess": excess_percent(VALIDATION, validation),
        "bins": float(sum(packing.bins for packing in training)),
        "lower_bound": float(sum(instance.lower_bound for instance in TRAINING)),
        "snug_share": sum(packing.snug for packing in training) / items,
        "bins_by_instance": ", ".join(
            f"{instance.name}: {packing.bins} (at least {instance.lower_bound})"
            for instance, packing in pairs
        ),
    }
