"""A score for each bin with room for the next item; the item goes into the bin that scores most."""


# EVOLVE-BLOCK-START
def score_bin(item, room, number, capacity):
    """Returns how much a bin is wanted for an item; the first of the most wanted gets it.

    Args:
      item: Size of the item.
      room: Room left in the bin, at least the item's size.
      number: Number of the bin, from 0 in the order in which bins were opened.
      capacity: Size of every bin.
    """
    gap = (room - item) / capacity
    return -0.25 * gap - 0.5 * number


# EVOLVE-BLOCK-END
