"""When a game of chess ends, and its position as text; the package `chess` has the moves."""

import chess

MOST_PLIES = 120
"""Moves of both players, after which material decides."""
LEAD = 3
"""Points of material that win then."""
VALUES = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}


def moves(board: chess.Board) -> list[str]:
    """Returns the legal moves as squares, in alphabetical order."""
    return sorted(move.uci() for move in board.legal_moves)


def material(board: chess.Board) -> int:
    """Returns the material of white minus that of black, in pawns."""
    return sum(
        value * (len(board.pieces(piece, chess.WHITE)) - len(board.pieces(piece, chess.BLACK)))
        for piece, value in VALUES.items()
    )


def ending(board: chess.Board) -> tuple[float, str] | None:
    """Returns the points of white and how the game ended; None while it goes on."""
    if not any(board.legal_moves):
        if board.is_check():
            return float(board.turn == chess.BLACK), "checkmate"
        return 0.5, "stalemate"
    if board.is_insufficient_material():
        return 0.5, "insufficient_material"
    if board.halfmove_clock >= 100:
        return 0.5, "fifty_moves"
    if board.is_repetition(3):
        return by_material(board), "repetition"
    if board.ply() >= MOST_PLIES:
        return by_material(board), "material"
    return None


def by_material(board: chess.Board) -> float:
    """Returns the points of white in a game that is not played to its end.

    Programs without a memory repeat moves; as draws, their games would not say which plays better.
    """
    lead = material(board)
    return 0.5 if abs(lead) < LEAD else float(lead > 0)


def text(board: chess.Board) -> str:
    """Returns the position as text: capitals are white, the first player."""
    rows = str(board).splitlines()
    named = [f"{8 - index} {row}" for index, row in enumerate(rows)]
    return "\n".join([*named, "  a b c d e f g h"])
