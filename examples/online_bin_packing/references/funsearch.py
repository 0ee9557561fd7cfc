"""The heuristic that FunSearch found for OR-Library's uniform class.

Source: Romera-Paredes et al., Nature 625 (2024); written here as a table of its steps.
"""

import numpy as np


def priority(item, bins):
    gaps = bins - item
    steps = [2, 3, 5, 7, 9, 12, 15, 21]
    worths = np.array([4, 3, 2, 1, 0.9, 0.95, 0.97, 0.98, 0.99])
    return worths[np.searchsorted(steps, gaps)]


def priorities(items, bins):
    """Returns the priorities of several items, each of a packing of its own."""
    return [priority(*one) for one in zip(items, bins, strict=True)]
