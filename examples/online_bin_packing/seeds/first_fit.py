"""First Fit: the oldest bin that has room, for all are alike."""


# EVOLVE-BLOCK-START
def priority(item, bins):
    return 0.0 * (bins - item)


# EVOLVE-BLOCK-END
