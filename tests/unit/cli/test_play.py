"""`evoq play`: the dialogue between a person and a program."""

from app.cli.play import play_to_end
from app.engine.exhibition import Position


class Nim:
    """Five sticks, of which each move takes one or two; the program takes one."""

    def shown(self, moves: list[str], move: str = "") -> Position:
        left = 5 - sum(map(int, [*moves, move or "0"]))
        legal = tuple(str(n) for n in (1, 2) if n <= left)
        return Position("|" * left, legal, move, "" if left else "no stick is left")

    def answered(self, moves: list[str]) -> Position:
        return self.shown(moves, "1")


def test_person_and_program_move_in_turn_until_the_game_is_over() -> None:
    said: list[str] = []
    ended = play_to_end(Nim(), ["2\n", "9\n", "1\n"], said.append, person=0)  # type: ignore[arg-type]
    assert ended == {"moves": ["2", "1", "1", "1"], "over": "no stick is left"}
    assert "'9' is no legal move" in said
    assert said.count("the program plays 1") == 2


def test_the_program_begins_where_the_person_is_second() -> None:
    ended = play_to_end(Nim(), ["2\n", "1\n"], lambda text: None, person=1)  # type: ignore[arg-type]
    assert ended["moves"] == ["1", "2", "1", "1"]


def test_a_person_may_leave() -> None:
    ended = play_to_end(Nim(), ["2\n"], lambda text: None, person=0)  # type: ignore[arg-type]
    assert ended == {"moves": ["2", "1"], "over": "the person left"}
