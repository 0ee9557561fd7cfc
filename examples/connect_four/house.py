"""The players of the house: opponents that are no entries of a tournament."""

from collections.abc import Callable
from random import Random

from rules import COLUMNS, Board, legal, wins

Player = Callable[[Board, int], int]
_CENTRE_FIRST = (3, 2, 4, 1, 5, 0, 6)


def random_player(seed: int) -> Player:
    """Plays a uniformly drawn legal move."""
    rng = Random(seed)

    def play(board: Board, side: int) -> int:  # noqa: ARG001
        return rng.choice(legal(board))

    return play


def search_player(depth: int) -> Player:
    """Takes a win within `depth` plies, avoids a loss, and otherwise prefers the centre."""

    def value(board: Board, side: int, left: int) -> float:
        moves = [column for column in _CENTRE_FIRST if column in legal(board)]
        if not moves or left == 0:
            return 0.0
        return max(after(board, side, column, left) for column in moves)

    def after(board: Board, side: int, column: int, left: int) -> float:
        board[column].append(side)
        try:
            if wins(board, column):
                return float(left)
            return -value(board, 1 - side, left - 1)
        finally:
            board[column].pop()

    def play(board: Board, side: int) -> int:
        moves = [column for column in _CENTRE_FIRST if column in legal(board)]
        return max(moves, key=lambda column: after(board, side, column, depth))

    return play


assert len(_CENTRE_FIRST) == COLUMNS
