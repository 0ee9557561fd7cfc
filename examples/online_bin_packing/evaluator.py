"""Scores a `priority` function by how few bins it needs on average.

The score is minus the excess over the lower bound, in per cent: 0 would be perfect.  The search
sees the training instances of `sets.py`.  At its end the best programs are validated on others, or
on the files named in EVOQ_PROBLEM_DATA (`--set problem.data=PATH`).
"""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from instances import read
from sets import TRAINING, VALIDATION

SNUG = 2
"""A gap of at most so many units counts as filled up."""


@dataclass(frozen=True)
class Packing:
    """What a priority function made of one instance.

    Attributes:
      bins: Bins in use at the end.
      snug: Items that filled their bin up to at most `SNUG` units.
    """

    bins: int
    snug: int


def pack(instances, priorities):
    """Packs instances side by side, an item of each at a time; returns a packing of each.

    As many bins as there are items exist from the start.  Every bin with room for the item is
    offered, unused ones too, in the order of creation; the first of the highest priority gets it.
    """
    rooms = [np.full(len(one.sizes), float(one.capacity)) for one in instances]
    sizes = [one.sizes.astype(float).tolist() for one in instances]
    snug = [0] * len(instances)
    for step in range(max(map(len, sizes))):
        going = [n for n, items in enumerate(sizes) if step < len(items)]
        items = [sizes[n][step] for n in going]
        fitting = [np.flatnonzero(rooms[n] >= item) for n, item in zip(going, items, strict=True)]
        offered = [rooms[n][bins] for n, bins in zip(going, fitting, strict=True)]
        wanted = priorities(items, offered)
        for n, item, bins, each in zip(going, items, fitting, wanted, strict=True):
            chosen = bins[first_of_the_highest(np.asarray(each), bins.shape)]
            rooms[n][chosen] -= item
            snug[n] += int(rooms[n][chosen] <= SNUG)
    return [
        Packing(int(np.count_nonzero(left < one.capacity)), count)
        for one, left, count in zip(instances, rooms, snug, strict=True)
    ]


def first_of_the_highest(priorities, shape):
    if priorities.shape != shape or priorities.dtype.kind not in "biuf":
        raise ValueError(
            f"priority must return one number a bin, an array of shape {shape}, "
            f"not {priorities.dtype} of shape {priorities.shape}"
        )
    chosen = int(np.argmax(priorities))  # NaN, where there is one
    if not np.isfinite(priorities[chosen]):
        raise ValueError(f"the highest priority is not finite: {priorities[chosen]}")
    return chosen


def excess_percent(instances, packings):
    """Returns the excess of mean bins over the mean lower bound: a ratio of means, in per cent."""
    bins = sum(packing.bins for packing in packings)
    least = sum(instance.lower_bound for instance in instances)
    return 100.0 * (bins - least) / least


def evaluate(program_path):
    try:
        training = pack(TRAINING, loaded(program_path))
    except ValueError as error:
        # A reported error fails the program, and the prompts that follow quote it.
        return {"error": str(error)}
    items = sum(len(instance.sizes) for instance in TRAINING)
    return {
        **totals(TRAINING, training),
        "snug_share": sum(packing.snug for packing in training) / items,
        "bins_by_instance": ", ".join(
            f"{instance.name}: {packing.bins} (at least {instance.lower_bound})"
            for instance, packing in zip(TRAINING, training, strict=True)
        ),
    }


def evaluate_validation(program_path):
    priorities, sets = loaded(program_path), validation_sets()
    packed = {name: pack(instances, priorities) for name, instances in sets.items()}
    bins = {
        f"{name} bins (at least {sum(one.lower_bound for one in sets[name])})": float(
            sum(packing.bins for packing in packings)
        )
        for name, packings in packed.items()
    }
    everything = [one for instances in sets.values() for one in instances]
    return {**totals(everything, [one for packings in packed.values() for one in packings]), **bins}


def validation_sets():
    """Returns name to instances: those of the files, where any are named, else those drawn."""
    names = [name for name in os.environ.get("EVOQ_PROBLEM_DATA", "").split(os.pathsep) if name]
    folder = Path(__file__).resolve().parent
    return {Path(name).stem: read(folder / name) for name in names} or VALIDATION


def loaded(program_path):
    """Returns a program's `priorities`, or one that calls its `priority` for each item.

    In a sandbox each call of a program goes to another process: one for ten items costs little more
    than one for one item.
    """
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    if hasattr(program, "priorities"):
        return program.priorities
    return lambda items, bins: [program.priority(*one) for one in zip(items, bins, strict=True)]


def totals(instances, packings):
    excess = excess_percent(instances, packings)
    return {
        "combined_score": -excess,
        "excess": excess,
        "bins": float(sum(packing.bins for packing in packings)),
        "lower_bound": float(sum(instance.lower_bound for instance in instances)),
    }
