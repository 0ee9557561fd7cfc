# EVOLVE-BLOCK-START
def move(board, seconds):
    """Weighs each column by the lines of discs that its free cell continues."""
    own, other, centre = [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0], 0.5
    best, chosen = -1000.0, 0
    for column in range(7):
        if board[0][column] != 0:
            continue
        row = max(r for r in range(6) if board[r][column] == 0)
        weight = -centre * abs(column - 3)
        for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1)):
            for side, worth in ((1, own), (-1, other)):
                length = 0
                for step in (1, -1):
                    x, y = column + step * dx, row + step * dy
                    while 0 <= x < 7 and 0 <= y < 6 and board[y][x] == side:
                        length, x, y = length + 1, x + step * dx, y + step * dy
                weight += worth[min(length, 3)]
        if weight > best:
            best, chosen = weight, column
    return chosen


# EVOLVE-BLOCK-END
