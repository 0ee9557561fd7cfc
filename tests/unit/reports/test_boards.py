"""Pictures of positions, and the positions that recorded moves lead to."""

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from app.reports.boards import MAX_LINES, picture, position_after

CONNECT_FOUR = """. . . . . . .
. . . . . . .
. . . . . . .
. . . . . . .
. . . o . . .
. . x x o . .
1 2 3 4 5 6 7"""
CHESS = """8 r n b q k b n r
7 p p p p . p p p
6 . . . . . . . .
5 . . . . p . . .
4 . . . . P . . .
3 . . . . . . . .
2 P P P P . P P P
1 R N B Q K B N R
  a b c d e f g h"""
NAMES = {"svg", "rect", "circle", "text"}


def elements(svg: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter())


def named(svg: str, name: str) -> list[ET.Element]:
    return [one for one in elements(svg) if one.tag.rpartition("}")[2] == name]


def test_a_board_of_discs_has_a_circle_for_each_cell() -> None:
    circles = named(picture(CONNECT_FOUR), "circle")
    fills = [one.get("fill") for one in circles]
    assert len(circles) == 42
    assert [fills.count(fill) for fill in sorted(set(fills), key=fills.count)] == [2, 2, 38]


def test_a_board_of_chess_has_its_pieces_on_squares() -> None:
    svg = picture(CHESS)
    assert len(named(svg, "rect")) == 64
    assert sorted({one.text for one in named(svg, "text")}) == sorted("♚♛♜♝♞♟")
    assert len(named(svg, "text")) == 32


def test_a_board_of_another_game_shows_its_characters() -> None:
    svg = picture("A < .\n& B .\n. . C")
    assert [one.text for one in named(svg, "text")] == ["A", "<", ".", "&", "B", ".", ".", ".", "C"]


def test_the_cells_of_the_last_move_are_framed() -> None:
    def framed(position: str, before: str) -> list[tuple[str | None, str | None]]:
        rectangles = named(picture(position, before), "rect")
        return [(one.get("x"), one.get("y")) for one in rectangles if one.get("fill") == "none"]

    moves = ["4", "4", "3"]
    disc = framed(position_after(moves), position_after(moves[:-1]))
    assert disc == [("82", "202")]
    pawn = framed(position_after(["e2e4", "e7e5"]), position_after(["e2e4"]))
    assert pawn == [("162", "42"), ("162", "122")]
    assert framed(CONNECT_FOUR, "") == framed(CONNECT_FOUR, CHESS) == []
    assert framed("no board", "nor this") == []


def test_a_text_that_is_no_board_is_shown_as_lines() -> None:
    svg = picture("</text><script>alert(1)</script>\n\"onload='x'")
    assert [one.text for one in named(svg, "text")] == [
        "</text><script>alert(1)</script>",
        "\"onload='x'",
    ]
    assert len(named(picture("line\n" * 1000), "text")) == MAX_LINES


@given(st.text(max_size=400) | st.text(alphabet="xo.<>&\"' \n\x00k1a", max_size=400))
def test_no_text_becomes_markup(position: str) -> None:
    found = elements(picture(position))
    assert {one.tag.rpartition("}")[2] for one in found} <= NAMES
    allowed = {"fill", "stroke", "viewBox", "role", "aria-label", "x", "y", "r", "cx", "cy"}
    allowed |= {"width", "height", "font-size", "font-family", "text-anchor", "stroke-width"}
    attributes = {name.rpartition("}")[2] for one in found for name in one.attrib}
    assert attributes <= allowed | {"dominant-baseline", "space"}


def test_columns_lead_to_a_position_of_connect_four() -> None:
    assert position_after(["4", "4", "3", "5"]) == "\n".join(CONNECT_FOUR.splitlines()[:6])
    assert position_after(["4", "4", "3", "5", "?9"]) == position_after(["4", "4", "3", "5"])
    assert position_after(["1"] * 7) == ""


def test_squares_lead_to_a_position_of_chess() -> None:
    rows = [line[2:] for line in CHESS.splitlines()[:8]]
    assert position_after(["e2e4", "e7e5"]) == "\n".join(rows)


def test_castling_en_passant_and_promotion_are_carried_out() -> None:
    castled = position_after(["e2e4", "e7e5", "g1f3", "b8c6", "f1c4", "f8c5", "e1g1"]).splitlines()
    assert castled[7] == "R N B Q . R K ."
    passed = position_after(["e2e4", "a7a6", "e4e5", "d7d5", "e5d6"]).splitlines()
    assert passed[2] == "p . . P . . . ."
    assert passed[3] == ". . . . . . . ."
    promoted = ["h2h4", "g7g5", "h4g5", "h7h6", "g5h6", "g8f6", "h6h7", "f6e4", "h7h8q"]
    assert position_after(promoted).splitlines()[0] == "r n b q k b . Q"


def test_no_position_is_guessed_of_another_notation() -> None:
    for moves in ([], ["up", "down"], ["4", "e2e4"], ["e4e5"], ["8"]):
        assert position_after(moves) == ""
