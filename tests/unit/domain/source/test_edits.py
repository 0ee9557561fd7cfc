from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import EditRules
from app.domain.replies.edit_blocks import parse_edits
from app.domain.source.edits import Edit, apply_edits, summary

RULES = EditRules()
PROGRAM = """\
def area(width, height):
    total = width * height
    return total


def perimeter(width, height):
    total = 2 * (width + height)
    return total
"""


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def edited(reply: str, source: str = PROGRAM) -> str:
    edits = parse_edits(reply, RULES)
    assert not isinstance(edits, Failure), edits
    result = apply_edits(source, edits)
    assert not isinstance(result, Failure), result
    return result


def refused(reply: str, source: str = PROGRAM) -> Failure:
    edits = parse_edits(reply, RULES)
    result = edits if isinstance(edits, Failure) else apply_edits(source, edits)
    assert isinstance(result, Failure), result
    return result


def test_an_exact_search_is_replaced() -> None:
    reply = "I widen it.\n" + block("    total = width * height", "    total = width * height * 2")

    assert edited(reply) == PROGRAM.replace("width * height\n", "width * height * 2\n")


def test_each_block_applies_to_the_result_of_the_block_before() -> None:
    reply = block("def area(width, height):", "def surface(width, height):") + block(
        "def surface(width, height):", "def surface(w, height):"
    )

    assert "def surface(w, height):" in edited(reply)


def test_an_exact_search_with_two_matches_takes_the_first() -> None:
    result = edited(block("    return total", "    return -total"))

    assert result.count("return -total") == 1
    assert result.index("return -total") < result.index("def perimeter")


def test_an_empty_replace_section_deletes() -> None:
    reply = "<<<<<<< SEARCH\n    total = width * height\n=======\n>>>>>>> REPLACE"

    assert edited(reply) == PROGRAM.replace("    total = width * height\n", "")


def test_a_reply_with_windows_line_ends_applies() -> None:
    reply = block("    total = width * height", "    total = 1").replace("\n", "\r\n")

    assert edited(reply) == PROGRAM.replace("width * height\n", "1\n", 1)


def test_a_program_with_windows_line_ends_keeps_them() -> None:
    source = PROGRAM.replace("\n", "\r\n")

    result = edited(block("    total = width * height", "    total = 1"), source)

    assert result == source.replace("width * height\r\n", "1\r\n", 1)


def test_blocks_in_fences_of_their_own_are_read() -> None:
    one = block("    total = width * height", "    total = 1")
    two = block("    total = 2 * (width + height)", "    total = 2")

    assert edited(f"```python\n{one}```\nand then\n```\n{two}```\n").count("total = ") == 2


def test_fences_inside_the_sections_are_removed() -> None:
    search, replace = "```python\n    total = width * height\n```", "```python\n    total = 1\n```"

    assert "    total = 1\n" in edited(block(search, replace))


def test_white_space_at_line_ends_does_not_matter() -> None:
    source = PROGRAM.replace("width * height\n", "width * height   \n")

    assert "total = 1\n" in edited(block("    total = width * height\t", "    total = 1"), source)


def test_a_search_at_another_indentation_matches_and_moves_its_replacement() -> None:
    reply = block("total = width * height", "total = width\ntotal *= height")

    assert "    total = width\n    total *= height\n" in edited(reply)


def test_a_search_indented_too_deep_matches_and_moves_its_replacement() -> None:
    reply = block("        total = width * height", "        total = 1")

    assert "\n    total = 1\n" in edited(reply)


def test_an_almost_exact_search_matches_the_only_similar_place() -> None:
    reply = block(
        "def perimeter(width, height):\n    totl = 2 * (width + height)\n    return total",
        "def perimeter(width, height):\n    return 2 * width + 2 * height",
    )

    assert edited(reply).endswith("    return 2 * width + 2 * height\n")


def test_a_short_search_never_matches_by_likeness() -> None:
    source = "x = alpha - beta\n"

    assert refused(block("x = alpha + beta", "x = 0"), source).kind is FailureKind.BAD_EDIT


def test_a_search_that_matches_twice_but_not_exactly_is_refused() -> None:
    failure = refused(block("return total", "return -total"))

    assert failure.kind is FailureKind.BAD_EDIT
    assert "matches at 2 places" in failure.detail
    assert "lines 3, 8" in failure.detail


def test_a_fuzzy_search_that_matches_twice_is_refused() -> None:
    passage = "    result = compute(first_argument, second_argument, third_argument)\n"
    source = f"def a():\n{passage}\ndef b():\n{passage}"
    near = passage.strip("\n").replace("third_argument", "third_argumnt")

    assert "matches at 2 places" in refused(block(near, "    pass"), source).detail


def test_a_search_without_a_match_reports_its_block_and_the_nearest_lines() -> None:
    reply = block("    total = width * height", "    total = 1") + block(
        "    total = 3 * (width * depth)\n    return totals", "    pass"
    )

    failure = refused(reply)

    assert failure.kind is FailureKind.BAD_EDIT
    assert "Block 2 of 2 matches nowhere" in failure.detail
    assert "    7 |     total = 2 * (width + height)" in failure.detail
    assert "totals" in failure.detail


def test_one_block_that_does_not_apply_refuses_them_all() -> None:
    reply = block("    total = width * height", "    total = 1") + block("no such line", "x")

    assert refused(reply).kind is FailureKind.BAD_EDIT


def test_a_reply_without_blocks_holds_no_code() -> None:
    assert refused("I would rather not.").kind is FailureKind.NO_CODE


def test_an_empty_search_is_refused() -> None:
    failure = refused("<<<<<<< SEARCH\n=======\nx = 1\n>>>>>>> REPLACE")

    assert "Block 1: its SEARCH section is empty" in failure.detail


def test_a_block_without_its_end_is_refused_by_number() -> None:
    reply = block("    return total", "    return 1") + "<<<<<<< SEARCH\nx\n=======\ny\n"

    assert "Block 2: its >>>>>>> REPLACE is missing" in refused(reply).detail


def test_a_block_with_two_dividers_is_refused() -> None:
    assert "more than one line of =======" in refused(block("a\n=======\nb", "c")).detail


def test_a_block_inside_a_block_is_refused() -> None:
    assert "inside another" in refused("<<<<<<< SEARCH\nx\n" + block("a", "b")).detail


def test_a_custom_diff_pattern_is_used() -> None:
    rules = EditRules(diff_pattern=r"<old>\n(.*?)</old>\n<new>\n(.*?)</new>")

    edits = parse_edits("<old>\na\n</old>\n<new>\nb\n</new>", rules)

    assert edits == [Edit(("a",), ("b",))]
    assert isinstance(parse_edits(block("a", "b"), rules), Failure)


def test_the_summary_shows_one_line_changes_on_a_line_and_bounds_the_others() -> None:
    long = tuple(f"line {n}" for n in range(40))

    text = summary([Edit(("  a = 1",), ("  a = 2",)), Edit(long, ("b",)), Edit(("c",), ())])

    assert text.startswith("Change 1: 'a = 1' to 'a = 2'\nChange 2: Replace:\n  line 0\n")
    assert "  ... (10 more lines)\nwith:\n  b\n" in text
    assert text.endswith("Change 3: Delete:\n  c")
