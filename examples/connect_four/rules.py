"""The rules of Connect Four: a board is a list of columns, each a list of sides from below."""

COLUMNS, ROWS, IN_A_LINE = 7, 6, 4
_DIRECTIONS = ((1, 0), (0, 1), (1, 1), (1, -1))
Board = list[list[int]]


def empty() -> Board:
    return [[] for _ in range(COLUMNS)]


def legal(board: Board) -> list[int]:
    return [column for column in range(COLUMNS) if len(board[column]) < ROWS]


def wins(board: Board, column: int) -> bool:
    """Returns whether the disc on top of a column completes a line."""
    row = len(board[column]) - 1
    side = board[column][row]

    def run(dx: int, dy: int) -> int:
        length, x, y = 0, column + dx, row + dy
        while 0 <= x < COLUMNS and 0 <= y < len(board[x]) and board[x][y] == side:
            length, x, y = length + 1, x + dx, y + dy
        return length

    return any(1 + run(dx, dy) + run(-dx, -dy) >= IN_A_LINE for dx, dy in _DIRECTIONS)


def seen_by(board: Board, side: int) -> list[list[int]]:
    """Returns the rows, the top one first; 1 is a disc of `side`, -1 one of the other."""
    return [
        [(1 if column[row] == side else -1) if row < len(column) else 0 for column in board]
        for row in reversed(range(ROWS))
    ]


def text(board: Board) -> str:
    """Returns the position as text: x is the first player, o the second."""
    marks = {1: "x", -1: "o", 0: "."}
    rows = [" ".join(marks[cell] for cell in row) for row in seen_by(board, 0)]
    return "\n".join([*rows, " ".join(str(1 + column) for column in range(COLUMNS))])
