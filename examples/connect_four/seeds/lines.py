# EVOLVE-BLOCK-START
def move(board, seconds):
    """Continues the longest line of its own, or stops the longest of the other."""
    worth, stop, centre = [0.0, 1.0, 1.5, 2.0], 0.5, [0.0, 0.1, 0.2, 0.3, 0.2, 0.1, 0.0]

    def longest(column, row, side):
        lengths = []
        for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1)):
            length = 0
            for step in (1, -1):
                x, y = column + step * dx, row + step * dy
                while 0 <= x < 7 and 0 <= y < 6 and board[y][x] == side:
                    length, x, y = length + 1, x + step * dx, y + step * dy
            lengths.append(min(length, 3))
        return max(lengths)

    def value(column):
        row = max(r for r in range(6) if board[r][column] == 0)
        own, other = worth[longest(column, row, 1)], worth[longest(column, row, -1)]
        return own + stop * other + centre[column]

    return max((column for column in range(7) if board[0][column] == 0), key=value)


# EVOLVE-BLOCK-END
