"""Boards: pictures of positions, and the positions that recorded moves lead to.

A position is the text of an evaluator, and a move that of a program.  A picture is made of the
characters of its board alone, each of them escaped, so that a text never becomes markup.
"""

import re
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise

MAX_SIDE = 40
"""Most rows, and most cells of a row, of a board that is drawn as cells."""
MAX_LINES, MAX_CHARS = 64, 120
"""Bounds of a position that is no board, and is drawn as text."""

EMPTY = "."
_CELL, _PIECE, _LETTER, _LINE = 40, 32, 22, 18
_INK, _PAPER = "#1f2933", "#f5f3ec"
_LIGHT, _DARK = "#f0d9b5", "#b58863"
_MOVED = "#e8590c"
_BOARD, _HOLE = "#2b5fa4", "#e8edf4"
_DISCS = {"x": "#d64545", "o": "#f2c230", EMPTY: _HOLE}
_PIECES = dict(zip("kqrbnp", "♚♛♜♝♞♟", strict=True))

_COLUMN = re.compile(r"[1-7]")
_COORDINATES = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")
_CONNECT_FOUR = (7, 6)

Board = tuple[tuple[str, ...], ...]
"""Rows of single characters, the top one first; all of one length."""


def picture(position: str, before: str = "") -> str:
    """Returns a position as an SVG document without scripts, styles, links and foreign markup.

    A board of discs (`x` and `o`) and one of chess (its letters, capitals are white) are drawn as
    such, another board as its characters, and any other text as its lines.

    Args:
      position: Lines of single characters between blanks, with or without names of the rows and
        columns, such as an evaluator returns as `position`; any other text.
      before: The position before the last move, whose cells are framed; "" where none is framed.
    """
    board = _board(position)
    if board is None:
        return _text(position)
    moved = _changed(board, _board(before))
    marks = {mark for row in board for mark in row}
    if marks <= set(_DISCS):
        return _cells(position, board, _disc, moved)
    if len(board) == len(board[0]) == 8 and marks <= {*"kqrbnpKQRBNP", EMPTY}:
        return _cells(position, board, _square, moved)
    return _cells(position, board, _letter, moved)


def position_after(moves: Sequence[str]) -> str:
    """Returns the text of the position that the legal moves of a game lead to.

    Two notations are known: columns from 1 to 7 (Connect Four), and squares (`e2e4`, `e7e8q`, the
    coordinates of chess) from the ordinary first position.  A last move that begins with "?", with
    which an evaluator marks an illegal one, is left out.

    Returns:
      "" for no moves, and for another notation; what is no move of it is never guessed.
    """
    if moves and moves[-1].startswith("?"):
        moves = moves[:-1]
    if moves and all(_COLUMN.fullmatch(move) for move in moves):
        return _dropped([int(move) - 1 for move in moves])
    if moves and all(_COORDINATES.fullmatch(move) for move in moves):
        return _moved(moves)
    return ""


def _board(position: str) -> Board | None:
    """Returns the cells of a position; None for a text that is no board."""
    rows = [tuple(line.split()) for line in position.splitlines() if line.strip()]
    if len(rows) > 1 and _names_of_columns(rows[-1]):
        rows.pop()
    width = len(rows[0]) if rows else 0
    if width > 1 and all(row[0].isdecimal() and not row[1].isdecimal() for row in rows if row[1:]):
        rows, width = [row[1:] for row in rows], width - 1
    if not 2 <= len(rows) <= MAX_SIDE or not 2 <= width <= MAX_SIDE:
        return None
    if any(len(row) != width or any(len(mark) != 1 for mark in row) for row in rows):
        return None
    return tuple(rows)


def _names_of_columns(row: Sequence[str]) -> bool:
    return len(row) > 1 and all(
        len(one) == len(two) == 1 and ord(two) == ord(one) + 1 for one, two in pairwise(row)
    )


def _changed(board: Board, before: Board | None) -> list[tuple[int, int]]:
    """Returns column and row of the cells that differ; none where the boards differ in size."""
    if before is None or [len(row) for row in before] != [len(row) for row in board]:
        return []
    return [
        (x, y) for y, row in enumerate(board) for x, mark in enumerate(row) if mark != before[y][x]
    ]


def _cells(
    position: str,
    board: Board,
    cell: Callable[[str, int, int], str],
    framed: Sequence[tuple[int, int]],
) -> str:
    drawn = "".join(cell(mark, x, y) for y, row in enumerate(board) for x, mark in enumerate(row))
    drawn += "".join(_frame(x, y) for x, y in framed)
    return _document(position, _CELL * len(board[0]), _CELL * len(board), drawn)


def _disc(mark: str, x: int, y: int) -> str:
    middle = f'cx="{_CELL * x + _CELL // 2}" cy="{_CELL * y + _CELL // 2}"'
    return f'{_rectangle(x, y, _BOARD)}<circle {middle} r="16" fill="{_DISCS[mark]}"/>'


def _square(mark: str, x: int, y: int) -> str:
    square = _rectangle(x, y, _DARK if (x + y) % 2 else _LIGHT)
    if mark == EMPTY:
        return square
    fill, edge = (_PAPER, _INK) if mark.isupper() else (_INK, _PAPER)
    ink = f'fill="{fill}" stroke="{edge}" stroke-width="0.8"'
    return square + _mark(_PIECES[mark.lower()], x, y, _PIECE, ink)


def _letter(mark: str, x: int, y: int) -> str:
    return _rectangle(x, y, _PAPER) + _mark(mark, x, y, _LETTER, f'fill="{_INK}"')


def _rectangle(x: int, y: int, fill: str) -> str:
    place = f'x="{_CELL * x}" y="{_CELL * y}" width="{_CELL}" height="{_CELL}"'
    return f'<rect {place} fill="{fill}"/>'


def _frame(x: int, y: int) -> str:
    place = f'x="{_CELL * x + 2}" y="{_CELL * y + 2}" width="{_CELL - 4}" height="{_CELL - 4}"'
    return f'<rect {place} fill="none" stroke="{_MOVED}" stroke-width="3"/>'


def _mark(text: str, x: int, y: int, size: int, ink: str) -> str:
    place = f'x="{_CELL * x + _CELL // 2}" y="{_CELL * y + _CELL // 2}" font-size="{size}"'
    middle = 'text-anchor="middle" dominant-baseline="central"'
    return f"<text {place} {middle} {ink}>{_shown(text)}</text>"


def _text(position: str) -> str:
    lines = [line[:MAX_CHARS] for line in position.splitlines()[:MAX_LINES]] or [""]
    drawn = "".join(
        f'<text x="8" y="{_LINE * number}" font-family="monospace" font-size="14" '
        f'fill="{_INK}" xml:space="preserve">{_shown(line)}</text>'
        for number, line in enumerate(lines, 1)
    )
    width = 16 + 9 * max(len(line) for line in lines)
    return _document("\n".join(lines), width, 8 + _LINE * len(lines), drawn)


def _document(position: str, width: int, height: int, drawn: str) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    name = _shown(" / ".join(position.splitlines()))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{name}">'
        f"{drawn}</svg>"
    )


def _shown(text: str) -> str:
    """Returns a text as the content of an element or an attribute, without control characters."""
    return escape("".join(one if one.isprintable() else "\ufffd" for one in text))


def _dropped(columns: Sequence[int]) -> str:
    width, height = _CONNECT_FOUR
    cells = [[EMPTY] * width for _ in range(height)]
    for ply, column in enumerate(columns):
        free = [row for row in range(height) if cells[row][column] == EMPTY]
        if not free:
            return ""
        cells[free[-1]][column] = "xo"[ply % 2]
    return _lines(cells)


def _moved(moves: Sequence[str]) -> str:
    rows = ["rnbqkbnr", "p" * 8, *[EMPTY * 8] * 4, "P" * 8, "RNBQKBNR"]
    cells = [list(row) for row in rows]
    for move in moves:
        (x, y), (to_x, to_y) = _place(move[:2]), _place(move[2:4])
        piece, taken = cells[y][x], cells[to_y][to_x]
        if piece == EMPTY:
            return ""
        if piece in "pP" and x != to_x and taken == EMPTY:
            # A pawn that moves sideways to an empty square captures en passant.
            cells[y][to_x] = EMPTY
        if piece in "kK" and abs(x - to_x) == 2:
            # In castling the rook goes to the other side of the king.
            corner = 7 if to_x > x else 0
            cells[y][(x + to_x) // 2], cells[y][corner] = cells[y][corner], EMPTY
        promoted = move[4:].upper() if piece.isupper() else move[4:]
        cells[to_y][to_x], cells[y][x] = promoted or piece, EMPTY
    return _lines(cells)


def _place(square: str) -> tuple[int, int]:
    """Returns column and row of a square, from the top left corner."""
    return ord(square[0]) - ord("a"), 8 - int(square[1])


def _lines(cells: Sequence[Sequence[str]]) -> str:
    return "\n".join(" ".join(row) for row in cells)
