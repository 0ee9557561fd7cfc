"""Programs with one evolving function: marked by a decorator, and by EVOLVE-BLOCK comments."""

SPEC = '''\
"""Finds large cap sets."""
import itertools

import numpy as np
import funsearch


@funsearch.run
def evaluate(n: int) -> int:
  """Returns the size of an `n`-dimensional cap set."""
  return len(solve(n))


def solve(n):
  return [v for v in itertools.product((0, 1, 2), repeat=n) if priority(v, n) > 0]


@funsearch.evolve
def priority(el: tuple[int, ...], n: int) -> float:
  """Returns the priority with which we want to add `el`."""
  # nothing is known yet
  return 0.0
'''
BLOCKS = '''\
import numpy as np

# EVOLVE-BLOCK-START
def priority(item, bins):
    """Wants bins."""
    if item > 9:
        return priority(9, bins)
    return -bins
# EVOLVE-BLOCK-END


def pack(items):
    return [priority(item, np.ones(3)) for item in items]
'''
