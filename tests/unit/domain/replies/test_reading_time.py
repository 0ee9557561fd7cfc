"""How long reading takes: of replies and output that a model or a program has made very long.

Models that lose their way repeat themselves up to their token limit, and a program can print what
it likes.  A reader that took the square of that would stop every thread of its worker.
"""

import time
from collections.abc import Callable

import pytest

from app.domain.evaluation import Evaluation, Failure
from app.domain.operator import Completion
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.prompting.judging import Judge, JudgedProgram, Judges, judgement
from app.domain.replies.children import read_edited, read_rewritten
from app.domain.replies.function_body import read_completed
from app.domain.secrets import redacted
from app.domain.source.edits import Edit, apply_edits, summary

PARENT = Program("def f(x):\n    return x\n")
CHARS = 100_000
SECONDS = 5.0
"""Of the processor's time; the square of so many characters takes a quarter of a minute."""

LONG = {
    "line ends": "x" + "\n" * CHARS + "x",
    "spaces": "x" + " " * CHARS + "x",
    "thoughts that never end": "<think>\n" * (CHARS // 8),
    "marks that end turns": "<|im_end|>\n" * (CHARS // 11) + "x",
    "the label of a fence": "```" + "a" * CHARS + "`",
    "tags that never end": "".join(f"<a{n}>\n" for n in range(CHARS // 8)) + "```\nx\n```\n",
    "brackets that never end": "[THINK]\n" * (CHARS // 8),
    "notes": "<plan>\nx\n</plan>\n```\ny\n```\n" * (CHARS // 30),
    "channels": "<|channel|>analysis<|message|>\n" * (CHARS // 31),
    "programs": "```python\ndef f(x):\n    return 2 * x\n```\nNo, wait.\n" * (CHARS // 57),
    "functions that are begun": "```python\ndef f(x):\n" * (CHARS // 20),
    "words for marks": "SEARCH\n```\nreturn x\n```\nREPLACE\n```\ny\n```\n" * (CHARS // 46),
    "edits of one line": "<<<<<<< SEARCH\n    return x\n=======\n    return y\n>>>>>>> REPLACE\n"
    * (CHARS // 66),
    "edits of nothing": "<<<<<<< SEARCH\n# x\n=======\ny\n>>>>>>> REPLACE\n" * (CHARS // 46),
    "words": "no, wait: this is " * (CHARS // 18),
    "fences": "```\n" * (CHARS // 4),
    "blocks that are begun": "<<<<<<< SEARCH\nx\n=======\n" * (CHARS // 25),
}


def seconds_of(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("form", ["diff", "rewrite", "complete"])
def test_a_reply_is_read_in_time_that_grows_with_its_length(name: str, form: str) -> None:
    reply, rules = Completion(LONG[name]), EditRules()

    def read() -> object:
        if form == "complete":
            return read_completed(reply, PARENT, "f", 1, rules, summary)
        return (read_edited if form == "diff" else read_rewritten)(reply, PARENT, rules)

    assert seconds_of(read) < SECONDS


@pytest.mark.parametrize(
    "text",
    ["\x1b]" * (CHARS // 2), "\x1b[0" * (CHARS // 3), "token " * (CHARS // 6), "a_" * (CHARS // 2)],
)
def test_output_is_redacted_in_time_that_grows_with_its_length(text: str) -> None:
    assert seconds_of(lambda: redacted(text)) < SECONDS


def test_terminal_codes_are_removed_with_every_terminator() -> None:
    assert redacted("a\x1b]0;title\x07b\x1b]8;;address\x1b\\c\x1b[31md") == "abcd"


KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE/owI+BAAK\nab/c==\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"read\n{KEY}\nend", "read\n<REDACTED_PRIVATE_KEY>\nend"),
        (repr(KEY), "'<REDACTED_PRIVATE_KEY>'"),
        (
            f"{KEY} and {KEY.replace('RSA ', '')}",
            "<REDACTED_PRIVATE_KEY> and <REDACTED_PRIVATE_KEY>",
        ),
        (f"cut off {KEY[:60]}", "cut off <REDACTED_PRIVATE_KEY>"),
        ("-----BEGIN PUBLIC KEY-----", "-----BEGIN PUBLIC KEY-----"),
    ],
)
def test_private_keys_are_removed_whole(text: str, expected: str) -> None:
    assert redacted(text) == expected


@pytest.mark.parametrize(
    "text",
    ["```json\n" + "\n" * CHARS, '{"a":' * (CHARS // 5), '{"a":' * 9000 + "1" + "}" * 9000],
    ids=["line ends", "begun", "deep"],
)
def test_an_unreadable_judgement_is_rejected_quickly(text: str) -> None:
    case = JudgedProgram(PARENT, (Evaluation(metrics={PARENT.id: {"speed": 1.0}}),))
    evaluations: list[Evaluation] = []

    taken = seconds_of(
        lambda: evaluations.append(judgement(Judges((Judge("m"),)), case, [Completion(text)]))
    )

    assert taken < SECONDS
    assert evaluations[0].artifacts["judges"] == "no JSON object in the reply of m"


def test_a_long_search_with_one_wrong_letter_compares_few_passages() -> None:
    text = [f"    weight_{n} = first[{n}] * {n * 37 % 101} + second[{n}]" for n in range(400)]
    search = list(text[100:220])
    search[60] = search[60].replace("second", "secund")
    found: list[str | Failure] = []

    taken = seconds_of(
        lambda: found.append(apply_edits("\n".join(text), [Edit(tuple(search), ("    pass",))]))
    )

    assert found == ["\n".join([*text[:100], "    pass", *text[220:]])]
    assert taken < SECONDS


def test_a_search_that_would_take_too_long_to_compare_is_refused() -> None:
    text = ["table = [" + "0, " * 4000, *["    0, 0, 0, 0, 0, 0, 0, 0,"] * 400, "]"]
    search = ("tabel = [1" + "0, " * 3999 + "1", *text[1:], "}")
    made: list[str | Failure] = []

    taken = seconds_of(lambda: made.append(apply_edits("\n".join(text), [Edit(search, ("x",))])))

    assert isinstance(made[0], Failure)
    assert taken < SECONDS
