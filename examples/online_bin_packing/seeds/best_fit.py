"""Best Fit: the bin that the item fills up the most."""

import numpy as np


# EVOLVE-BLOCK-START
def priority(item, bins):
    """Returns the priority of each bin for an item, which goes to the bin with the highest.

    Args:
      item: Size of the item, a number.
      bins: Room left in each bin that the item fits into, a NumPy array of shape (n,).

    Returns:
      A NumPy array of shape (n,): one finite number for each bin.
    """
    return item - bins


# EVOLVE-BLOCK-END


def priorities(items, bins):
    """Returns the priorities of several items, each of a packing of its own."""
    return [priority(*one) for one in zip(items, bins, strict=True)]
