"""What holds of every text a model may send."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.children import read_edited, read_rewritten
from app.domain.source.edits import Edit, apply_edits, edits_between

RULES = EditRules()
WORDS = st.sampled_from(["x = 1", "    y = x", "", "return y", "  ", "def f():", "x = 1 "])
TEXTS = st.lists(WORDS, max_size=12).map("\n".join) | st.text(max_size=60).map(
    lambda text: text.replace("\r", "")
)
PIECES = st.sampled_from(
    [
        "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "```python\n", "```\n", "~~~~\n",
        "x = 1\n", "    return 2\n", "<think>", "</think>\n", "# EVOLVE-BLOCK-START\n",
        "# EVOLVE-BLOCK-END\n", "I'm sorry, ", "\r\n", "\x00", "\ud800", "<|channel|>final",
        "<|message|>", "def f(:\n", "(" * 50, "\t", "'\\d'\n",
    ]
)  # fmt: skip
REPLIES = st.lists(PIECES | st.text(max_size=20), max_size=14).map("".join)
PARENTS = st.sampled_from(
    [
        Program("x = 1\n"),
        Program("# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\nprint(x)\n"),
        Program("x = 1\r\nprint(x)\r\n"),
        Program("# EVOLVE-BLOCK-START\nx = 1\n"),
        Program("", "python"),
        Program("fn main() {}\n", "rust"),
        Program("Be polite.\n", "text"),
    ]
)


@settings(max_examples=40)
@given(TEXTS, TEXTS)
def test_the_edits_between_two_texts_turn_the_first_into_the_second(
    before: str, after: str
) -> None:
    edits = edits_between(before, after)

    assert apply_edits(before, edits) == after
    assert (edits == []) is (before == after)


@given(TEXTS, TEXTS)
def test_windows_line_ends_are_kept_on_the_way(before: str, after: str) -> None:
    before, after = "a\n" + before, "a\n" + after
    windows = before.replace("\n", "\r\n")

    assert apply_edits(windows, edits_between(before, after)) == after.replace("\n", "\r\n")


@settings(max_examples=150)
@given(REPLIES, PARENTS, st.sampled_from(["stop", "length", "", "content_filter"]))
def test_no_reply_raises_and_every_child_differs_from_its_parent(
    text: str, parent: Program, finish: str
) -> None:
    for read in (read_edited, read_rewritten):
        child = read(Completion(text, finish=finish), parent, RULES)
        if isinstance(child, Offspring):
            assert child.program.source != parent.source
            assert len(child.program.source) <= RULES.max_code_chars
        else:
            assert child.detail


LONG = st.text(st.sampled_from("abcdefghij "), min_size=45, max_size=70).filter(
    lambda text: text == text.strip()
)


@settings(max_examples=50)
@given(LONG, st.integers(0, 44), st.lists(WORDS, max_size=3), st.lists(WORDS, max_size=3))
def test_a_search_that_resembles_two_places_never_applies(
    line: str, at: int, between: list[str], after: list[str]
) -> None:
    nearly = line[:at] + "#" + line[at + 1 :]
    source = "\n".join([line, *between, line, *after])

    result = apply_edits(source, [Edit((nearly,), ("z = 0",))])

    assert isinstance(result, Failure)
    assert result.kind is FailureKind.BAD_EDIT


@given(LONG, st.integers(0, 44))
def test_a_search_that_resembles_one_place_applies(line: str, at: int) -> None:
    nearly = line[:at] + "#" + line[at + 1 :]
    source = f"first = 1\n{line}\nlast = 2"

    assert apply_edits(source, [Edit((nearly,), ("z = 0",))]) == "first = 1\nz = 0\nlast = 2"


def test_overlapping_places_that_are_equally_alike_are_refused() -> None:
    line = "total = total + weight[i] * value[i]"
    source = "\n".join([line] * 3)
    nearly = line.replace("value", "valu")

    assert isinstance(apply_edits(source, [Edit((nearly, nearly), ("z = 0",))]), Failure)
