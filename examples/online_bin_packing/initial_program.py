"""Online bin packing: items arrive one by one, and each must be placed before the next is seen."""

import numpy as np


# EVOLVE-BLOCK-START
def priority(item, bins):
    """Returns how much each bin is wanted for an item; the first of the most wanted gets it.

    Args:
      item: Size of the item.
      bins: Rooms left in the bins it fits into, before it is placed; array of shape (n,), in the
        order in which the bins were made.  Unused bins are among them.

    The worth of the gap that would remain is interpolated between a few points.  At first it falls
    with the gap everywhere, which is Best Fit.
    """
    gaps = bins - item
    widths = [0.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 150.0]
    worths = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    return np.interp(gaps, widths, worths)


# EVOLVE-BLOCK-END


def priorities(items, bins):
    """Returns the priorities of several items, each of a packing of its own."""
    return [priority(*one) for one in zip(items, bins, strict=True)]
