import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.evaluation import Failure, FailureKind
from app.domain.source.regions import bodies, enforce, lines, parse

PARENT = """\
import os
# EVOLVE-BLOCK-START
x = 1
# EVOLVE-BLOCK-END
middle = 2
# EVOLVE-BLOCK-START
y = 3
z = 4
# EVOLVE-BLOCK-END
tail = 5
"""


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("# EVOLVE-BLOCK-START", "# EVOLVE-BLOCK-END"),
        ("    // EVOLVE-BLOCK-START here", "    // EVOLVE-BLOCK-END"),
        ("/* EVOLVE-BLOCK-START */", "/* EVOLVE-BLOCK-END */"),
        ("-- EVOLVE-BLOCK-START", "-- EVOLVE-BLOCK-END"),
        ("% EVOLVE-BLOCK-START", "% EVOLVE-BLOCK-END"),
        ("<!-- EVOLVE-BLOCK-START -->", "<!-- EVOLVE-BLOCK-END -->"),
        ("EVOLVE-BLOCK-START", "EVOLVE-BLOCK-END"),
        ("def f():  # EVOLVE-BLOCK-START", "pass  # EVOLVE-BLOCK-END"),
    ],
)
def test_any_comment_sign_marks_a_block(start: str, end: str) -> None:
    assert bodies(f"before\n{start}\nbody\n{end}\nafter\n") == ("body\n",)


@pytest.mark.parametrize(
    "text", ["// EVOLVE-BLOCK-STARTED\n", "# see EVOLVE-BLOCK-START\n", "x = 1 EVOLVE-BLOCK-END\n"]
)
def test_the_marker_must_be_a_whole_word_at_the_start(text: str) -> None:
    regions = parse(text)

    assert regions.blocks == ()
    assert regions.fault == ""


def test_a_program_without_blocks_may_change_everywhere() -> None:
    assert bodies("a\nb\n") == ("a\nb\n",)
    assert all(parse("a\nb\n").holds(line) for line in (0, 1))
    assert enforce("a\nb\n", "something else") == "something else"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# EVOLVE-BLOCK-START\nx\n", "line 1: a block starts that never ends"),
        ("x\n# EVOLVE-BLOCK-END\n", "line 2: a block ends that never started"),
        (
            "# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n",
            "line 2: a block starts inside the one of line 1",
        ),
    ],
)
def test_damaged_markers_are_a_fault_with_its_line(text: str, said: str) -> None:
    assert parse(text).fault == said
    assert parse(text).blocks == ()


def test_only_the_lines_between_markers_may_change() -> None:
    regions = parse(PARENT)

    assert [line for line in range(10) if regions.holds(line)] == [2, 6, 7]


def test_the_childs_bodies_enter_the_parents_outside_text() -> None:
    child = PARENT.replace("x = 1", "x = 10").replace("middle = 2", "stolen = 2")
    child = child.replace("import os\n", "import sys\n\n").replace("z = 4\n", "z = 40\nw = 5\n")

    merged = enforce(PARENT, child)

    assert merged == PARENT.replace("x = 1", "x = 10").replace("z = 4\n", "z = 40\nw = 5\n")


def test_a_child_with_another_number_of_blocks_is_a_bad_edit() -> None:
    failure = enforce(PARENT, PARENT.split("middle")[0])

    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.BAD_EDIT
    assert "2 EVOLVE-BLOCK region(s) and the reply 1" in failure.detail


def test_a_child_with_damaged_markers_is_a_bad_edit_that_names_the_line() -> None:
    failure = enforce(PARENT, PARENT.replace("# EVOLVE-BLOCK-END\nmiddle", "middle"))

    assert isinstance(failure, Failure)
    assert "line 5" in failure.detail


def test_a_change_only_outside_the_blocks_is_a_bad_edit() -> None:
    failure = enforce(PARENT, PARENT.replace("tail = 5", "tail = 6"))

    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.BAD_EDIT


def test_the_parent_itself_passes_unchanged() -> None:
    assert enforce(PARENT, PARENT) == PARENT


@given(st.text())
def test_lines_lose_nothing(text: str) -> None:
    assert "".join(lines(text)) == text


def test_lines_split_where_python_splits_them() -> None:
    assert lines("a\x0cb\u2028c\r\nd\re\nf") == ["a\x0cb\u2028c\r\n", "d\r", "e\n", "f"]


@given(st.lists(st.sampled_from(["x = 1\n", "y\n", "\n", "# note\n"])))
def test_enforcing_twice_is_enforcing_once(body: list[str]) -> None:
    child = f"other\n# EVOLVE-BLOCK-START\n{''.join(body)}# EVOLVE-BLOCK-END\n"
    parent = "mine\n# EVOLVE-BLOCK-START\nold\n# EVOLVE-BLOCK-END\n"

    merged = enforce(parent, child)

    assert isinstance(merged, str)
    assert enforce(parent, merged) == merged
    assert bodies(merged) == bodies(child)
