# EVOLVE-BLOCK-START
def move(fen, legal, seconds):
    """Plays the first legal move."""
    return legal[0]


# EVOLVE-BLOCK-END
