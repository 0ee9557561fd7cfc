# EVOLVE-BLOCK-START
def move(fen, legal, seconds):
    """Weighs each move by what it takes, where it goes and which piece it moves."""
    worth = {"p": 1.0, "n": 3.0, "b": 3.0, "r": 5.0, "q": 9.0, "k": 0.0}
    board = {}
    for row, text in enumerate(fen.split()[0].split("/")):
        column = 0
        for mark in text:
            if mark.isdigit():
                column += int(mark)
            else:
                board["abcdefgh"[column] + str(8 - row)] = mark.lower()
                column += 1
    best, chosen = -1000.0, legal[0]
    for one in legal:
        here, there = one[:2], one[2:4]
        x, y = ord(there[0]) - 96, int(there[1])
        weight = 1.0 * worth.get(board.get(there, ""), 0.0)
        weight -= 0.1 * worth[board[here]]
        weight -= 0.05 * (abs(x - 4.5) + abs(y - 4.5))
        weight += 5.0 * len(one[4:])
        if weight > best:
            best, chosen = weight, one
    return chosen


# EVOLVE-BLOCK-END
