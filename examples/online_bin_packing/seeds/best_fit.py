"""Best Fit: the bin that the item fills up the most."""


# EVOLVE-BLOCK-START
def priority(item, bins):
    return item - bins


# EVOLVE-BLOCK-END
