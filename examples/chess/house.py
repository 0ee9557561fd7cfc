"""The players of the house: opponents that are no entries of a tournament."""

from collections.abc import Callable
from random import Random

import chess
from rules import material, moves

Player = Callable[[chess.Board], str]
_MATE = 1000.0


def random_player(seed: int) -> Player:
    """Plays a uniformly drawn legal move."""
    rng = Random(seed)

    def play(board: chess.Board) -> str:
        return rng.choice(moves(board))

    return play


def search_player(depth: int, seed: int) -> Player:
    """Plays for material over `depth` plies, with alpha-beta; one of equal moves is drawn."""
    rng = Random(seed)

    def value(board: chess.Board, left: int, low: float, high: float) -> float:
        """Returns what the position is worth to the side that is to move."""
        if left == 0:
            return material(board) if board.turn else -material(board)
        best = -_MATE - left if board.is_check() else 0.0
        for number, move in enumerate(board.legal_moves):
            board.push(move)
            after = -value(board, left - 1, -high, -low)
            board.pop()
            best = after if number == 0 else max(best, after)
            low = max(low, best)
            if low >= high:
                break
        return best

    def play(board: chess.Board) -> str:
        chosen, low = "", -2 * _MATE
        for move in rng.sample(legal := moves(board), len(legal)):
            board.push_uci(move)
            after = -value(board, depth - 1, -2 * _MATE, -low)
            board.pop()
            if after > low:
                chosen, low = move, after
        return chosen

    return play
