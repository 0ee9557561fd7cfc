"""The referee of Connect Four.

`match` is one game between two programs.  It yields each move, so that the moves of a game that
ends by an exception of a player are kept.  What a player does wrong is raised by its own call, and
the sandbox blames it; the referee has to judge nothing but the legality of a move.
"""

import importlib.util
import random
import time

import house
import rules

GAME_SECONDS = 20.0
OPENING_PLIES = 4  # nobody can have four discs in a line yet
SIDES = ("first", "second")


def load(path):
    spec = importlib.util.spec_from_file_location("player", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entry(path):
    """Returns a program as a player."""
    module, left = load(path), [GAME_SECONDS]

    def play(board, side):
        started = time.monotonic()
        column = module.move(rules.seen_by(board, side), left[0])
        left[0] -= time.monotonic() - started
        return column

    return play


def opened(plies):
    """Returns a board after random moves, and these; the sandbox seeds `random` for each trial."""
    board, columns = rules.empty(), []
    for ply in range(plies):
        columns.append(random.choice(rules.legal(board)))
        board[columns[-1]].append(ply % 2)
    return board, columns


def game(players, plies=0):
    """Yields the moves of a game, as columns from 1, random ones at first; returns its result."""
    board, opening = opened(plies)
    yield from (str(1 + column) for column in opening)
    position = rules.text(board)
    for ply in range(plies, rules.COLUMNS * rules.ROWS):
        side = ply % 2
        column = players[side](board, side)
        if type(column) is not int or column not in rules.legal(board):
            yield f"?{str(column)[:10]}"
            return {**points(1 - side), "termination": "illegal_move", "culprit": SIDES[side],
                    "position": rules.text(board)}  # fmt: skip
        board[column].append(side)
        yield str(1 + column)
        position = rules.text(board)
        if rules.wins(board, column):
            return {**points(side), "termination": "four_in_a_line", "position": position}
    return {"first": 0.5, "second": 0.5, "termination": "full_board", "position": position}


def points(winner):
    return {"first": float(winner == 0), "second": float(winner == 1)}


def match(first, second):
    """Plays from an opening that is drawn for each pair: programs that always answer alike would
    repeat one game, and the champion would be the best at that game alone."""
    result = yield from game([entry(first), entry(second)], OPENING_PLIES)
    return result


def smoke(program):
    """Plays both sides against the players of the house; an illegal move is an error."""
    score, games = 0.0, 0
    for number, opponent in enumerate((house.random_player(1), house.search_player(3))):
        for seat in range(2):
            players = [opponent, opponent]
            players[seat] = entry(program)
            result = finished(game(players))
            if result.get("culprit"):
                return {"error": f"an illegal move in game {number}:\n{result['position']}"}
            score, games = score + result[SIDES[seat]], games + 1
    return {"against_the_house": score / games}


def finished(moves):
    """Plays a game to its end and returns the result."""
    while True:
        try:
            next(moves)
        except StopIteration as end:
            return end.value


def turn(program, cases):
    """Shows a position, and has a program move there if it is its turn.

    `evoq play` calls it: cases are `move` or `show`, and the moves so far.
    """
    board, over = rules.empty(), ""
    asked, *moves = cases
    for ply, move in enumerate(moves):
        over = over or put(board, int(move) - 1, ply % 2)
    answer = ""
    if asked == "move" and not over:
        column = entry(program)(board, len(moves) % 2)
        if type(column) is not int or column not in rules.legal(board):
            over = "the program made an illegal move"
        else:
            answer, over = str(1 + column), put(board, column, len(moves) % 2)
    return {
        "position": rules.text(board), "legal": [str(1 + column) for column in rules.legal(board)],
        "move": answer, "over": over,
    }  # fmt: skip


def put(board, column, side):
    """Makes a move; returns how it ended the game, "" if it did not."""
    board[column].append(side)
    if rules.wins(board, column):
        return f"{'xo'[side]} has four in a line"
    return "" if rules.legal(board) else "the board is full"
