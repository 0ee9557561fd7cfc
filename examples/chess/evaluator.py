"""The referee of chess.

`match` is one game between two programs.  It yields each move, so that the moves of a game that
ends by an exception of a player are kept.  What a player does wrong is raised by its own call, and
the sandbox blames it; the referee has to judge nothing but the legality of a move.
"""

import importlib.util
import random
import time

import chess
import house
import rules

GAME_SECONDS = 20.0
OPENING_PLIES = 4
SIDES = ("first", "second")


def load(path):
    spec = importlib.util.spec_from_file_location("player", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entry(path):
    """Returns a program as a player."""
    module, left = load(path), [GAME_SECONDS]

    def play(board):
        started = time.monotonic()
        move = module.move(board.fen(), rules.moves(board), left[0])
        left[0] -= time.monotonic() - started
        return move

    return play


def game(players, plies=0):
    """Yields the moves of a game, as squares, random ones at first; returns its result."""
    board = chess.Board()
    for _ in range(plies):  # the sandbox seeds `random` for each trial
        yield board.push_uci(random.choice(rules.moves(board))).uci()
    while (ended := rules.ending(board)) is None:
        side = board.ply() % 2
        move = players[side](board)
        if type(move) is not str or move not in rules.moves(board):
            yield f"?{str(move)[:10]}"
            return {**points(float(side == 1)), "termination": "illegal_move",
                    "culprit": SIDES[side], "position": rules.text(board)}  # fmt: skip
        board.push_uci(move)
        yield move
    score, termination = ended
    return {**points(score), "termination": termination, "position": rules.text(board)}


def points(score):
    return {"first": score, "second": 1.0 - score}


def match(first, second):
    """Plays from an opening that is drawn for each pair: programs that always answer alike would
    repeat one game, and the champion would be the best at that game alone."""
    result = yield from game([entry(first), entry(second)], OPENING_PLIES)
    return result


def smoke(program):
    """Plays both sides against the players of the house; an illegal move is an error."""
    score, games = 0.0, 0
    for number, opponent in enumerate((house.random_player(1), house.search_player(2, seed=2))):
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
    board = chess.Board()
    asked, *moves = cases
    for move in moves:
        board.push_uci(move)
    answer, over = "", how_it_ended(board)
    if asked == "move" and not over:
        move = entry(program)(board)
        if type(move) is not str or move not in rules.moves(board):
            over = "the program made an illegal move"
        else:
            board.push_uci(move)
            answer, over = move, how_it_ended(board)
    return {
        "position": rules.text(board), "legal": rules.moves(board), "move": answer, "over": over,
    }  # fmt: skip


def how_it_ended(board):
    """Returns how a position ends the game, "" if it does not."""
    ended = rules.ending(board)
    if ended is None:
        return ""
    score, termination = ended
    winner = {1.0: "white wins", 0.0: "black wins"}.get(score, "a draw")
    return f"{termination.replace('_', ' ')}: {winner}"
