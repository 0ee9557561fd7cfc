"""First Fit: the oldest bin that has room, for all are alike."""


# EVOLVE-BLOCK-START
def priority(item, bins):
    return 0.0 * (bins - item)


# EVOLVE-BLOCK-END


def priorities(items, bins):
    """Returns the priorities of several items, each of a packing of its own."""
    return [priority(*one) for one in zip(items, bins, strict=True)]
