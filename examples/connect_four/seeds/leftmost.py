# EVOLVE-BLOCK-START
def move(board, seconds):
    """Plays the first column that is not full."""
    return next(column for column in range(7) if board[0][column] == 0)


# EVOLVE-BLOCK-END
