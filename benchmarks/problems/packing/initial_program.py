# EVOLVE-BLOCK-START
def priority(item, gap):
    """Returns what it is worth to put an item into a bin with this gap."""
    worth = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    return worth[min((gap - item) // 4, 8)]


# EVOLVE-BLOCK-END


def priorities(items, gaps):
    return [[priority(item, gap) if gap >= item else 0.0 for gap in gaps] for item in items]
