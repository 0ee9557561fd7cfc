# EVOLVE-BLOCK-START
def move(board, seconds):
    """Weighs each column by its place, its height and the discs in the cells around."""
    best, chosen = -1000.0, 0
    for column in range(7):
        if board[0][column] != 0:
            continue
        row = max(r for r in range(6) if board[r][column] == 0)
        weight = 0.1 * row - 0.2 * abs(column - 3)
        for r in range(max(0, row - 1), min(6, row + 2)):
            for c in range(max(0, column - 1), min(7, column + 2)):
                if board[r][c] == 1:
                    weight += 0.5
                if board[r][c] == -1:
                    weight += 0.1
        if weight > best:
            best, chosen = weight, column
    return chosen


# EVOLVE-BLOCK-END
