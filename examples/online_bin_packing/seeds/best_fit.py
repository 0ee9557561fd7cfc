"""Best Fit: the bin that the item fills up the most."""


# EVOLVE-BLOCK-START
def priority(item, bins):
    return item - bins


# EVOLVE-BLOCK-END


def priorities(items, bins):
    """Returns the priorities of several items, each of a packing of its own."""
    return [priority(*one) for one in zip(items, bins, strict=True)]
