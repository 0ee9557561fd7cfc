"""The operator `complete`: a file of versions, and the body of the next."""

import ast
from dataclasses import replace

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Brief, Child, Completion, Draft, Offspring, ProgramRecord, Prompt
from app.domain.operators.complete import COMPLETE
from app.domain.program import Program
from app.domain.prompting.rules import PromptRules
from app.domain.source.functions import evolving, find_function
from tests.unit.domain.evolving_programs import BLOCKS, SPEC


def brief_of(source: str, *others: str, **settings: object) -> Brief:
    """The parent has fitness 0.5; the others 0.9, 0.8 and so on down."""
    programs = [Program(source), *map(Program, others)]
    fitness = [0.5, *(0.9 - n / 10 for n in range(len(others)))]
    known = {p.id: ProgramRecord(p, f) for p, f in zip(programs, fitness, strict=True)}
    ids = tuple(known)
    draft = Draft(3, 0, 0, 1, ids[:1], ids[1:])
    return Brief("Task.", "python", (draft,), known, prompts=PromptRules(**settings), seed="s")


def prompt_of(brief: Brief) -> Prompt:
    [prompt] = next(COMPLETE.converse(brief))
    return prompt


def completed(brief: Brief, text: str, finish: str = "stop") -> Child:
    conversation = COMPLETE.converse(brief)
    next(conversation)
    try:
        conversation.send([Completion(text, finish=finish)])
    except StopIteration as ended:
        [child] = ended.value
        return child
    raise AssertionError("no repair prompt")


def source_of(child: Child) -> str:
    assert isinstance(child, Offspring), child
    return child.program.source


def file_of(prompt: Prompt) -> str:
    return prompt.user.split("```python\n")[1].split("\n```")[0]


def test_the_prompt_is_a_file_of_rising_versions_and_an_open_header() -> None:
    better = BLOCKS.replace("return -bins", "return -(bins**2)")
    worse = BLOCKS.replace("return -bins", "return bins")
    text = file_of(prompt_of(brief_of(BLOCKS, better, worse)))

    tree = ast.parse(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [one.name for one in functions] == ["priority_v0", "priority_v1", "priority_v2"]
    assert text.startswith("import numpy as np")
    assert "EVOLVE-BLOCK" not in text
    assert "def pack" not in text
    assert "return priority_v0(9, bins)" in text
    assert text.index("return -bins") < text.index("return -(bins**2)")
    assert ast.get_docstring(functions[0]) == "Wants bins."
    assert ast.get_docstring(functions[1]) == "Improved version of `priority_v0`."
    assert len(functions[2].body) == 1
    assert "return bins\n" not in text


def test_every_parent_of_a_draft_is_a_version_and_the_file_is_that_of_the_first() -> None:
    better = BLOCKS.replace("return -bins", "return -(bins**2)")
    brief = brief_of(BLOCKS, better)
    own, other = brief.known
    draft = replace(brief.drafts[0], parents=(other, own), inspirations=())

    text = file_of(prompt_of(replace(brief, drafts=(draft,))))

    assert text.index("def priority_v0") < text.index("return -bins")
    assert text.index("return -bins") < text.index("def priority_v1")
    assert text.index("def priority_v1") < text.index("return -(bins**2)")
    assert "def priority_v2" in text


def test_the_setting_names_the_function_of_several_that_evolves() -> None:
    two = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"

    assert "def two_v1" in file_of(prompt_of(brief_of(two, function="two")))
    assert "def one_v1" in file_of(prompt_of(brief_of(two, function="one")))


def test_distinct_versions_are_shown_up_to_the_setting() -> None:
    twin = BLOCKS.replace('"""Wants bins."""', '"""Says it otherwise."""')
    better = BLOCKS.replace("return -bins", "return -(bins**2)")

    assert "priority_v2" not in file_of(prompt_of(brief_of(BLOCKS, twin)))
    assert "priority_v2" not in file_of(prompt_of(brief_of(BLOCKS, better, functions_per_prompt=1)))


def test_a_funsearch_decorator_marks_the_evolving_function() -> None:
    text = file_of(prompt_of(brief_of(SPEC)))

    assert evolving(Program(SPEC)) == "priority"
    assert text.startswith('"""Finds large cap sets."""\nimport itertools')
    assert "def priority_v0(el: tuple[int, ...], n: int) -> float:" in text
    assert "@funsearch" not in text.split("import funsearch")[1]
    assert "solve" not in text


@pytest.mark.parametrize(
    "reply",
    [
        "```python\ndef priority_v1(item, bins):\n    return -bins / item\n```",
        "def priority_v1(item, bins):\n    return -bins / item",
        "```\ndef priority(item, bins):\n    return -bins / item\n```",
        "    return -bins / item\n",
        "return -bins / item",
        "```python\n    return -bins / item\n```",
        "    return -bins / item\n\n\nprint('and so on\n",
        "```python\ndef priority_v0(item, bins):\n    return -bins\n\n"
        "def priority_v1(item, bins):\n  return -bins / item\n```",
        "<think>```python\ndef priority_v1(item, bins):\n    return 7\n```</think>\n"
        "def priority_v1(item, bins):\n    return -bins / item",
        'def priority_v1(item, bins):\n    """Improved version of `priority_v0`."""\n'
        "    return -bins / item",
    ],
)
def test_a_completion_replaces_the_body_only(reply: str) -> None:
    child = completed(brief_of(BLOCKS), reply)

    cut = find_function(source_of(child), "priority")
    own = find_function(BLOCKS, "priority")
    assert cut is not None
    assert own is not None
    assert cut.body.strip() == "return -bins / item"
    assert own.source(cut.body) == source_of(child)


def test_the_new_function_may_call_itself_and_keeps_its_name() -> None:
    reply = "def priority_v1(item, bins):\n    return priority_v1(item - 1, bins) if item else bins"

    assert "return priority(item - 1, bins) if item" in source_of(
        completed(brief_of(BLOCKS), reply)
    )


def test_other_definitions_of_a_reply_go_into_the_body() -> None:
    reply = (
        "import math\nimport numpy as np\n\nSCALE = 3\n\ndef bent(x):\n    return math.sqrt(x)\n\n"
        "def priority_v1(item, bins):\n    return bent(item) * SCALE * np.sign(bins)"
    )
    source = source_of(completed(brief_of(BLOCKS), reply))

    body = source.split('"""Wants bins."""\n')[1].split("# EVOLVE-BLOCK-END")[0]
    assert body.startswith("    import math\n    SCALE = 3\n    def bent(x):\n")
    assert "import numpy" not in body
    compile(source, "x", "exec")


def test_a_class_of_the_reply_goes_into_the_body_and_a_future_import_is_dropped() -> None:
    reply = (
        "from __future__ import annotations\n\nclass Gap:\n    size = 3\n\n"
        "def priority_v1(item, bins):\n    return Gap.size * bins"
    )
    source = source_of(completed(brief_of(BLOCKS), reply))

    assert "    class Gap:\n        size = 3\n    return Gap.size * bins\n" in source
    compile(source, "x", "exec")  # which refuses a future import inside a function


@pytest.mark.parametrize("head", ["def priority_v1(item, bins):\n", ""])
def test_lines_inside_a_string_keep_their_white_space(head: str) -> None:
    indent = "  " if head else ""
    reply = f'{head}{indent}text = """\n1 2\n    3\n"""\n{indent}return len(text) * bins\n'
    source = source_of(completed(brief_of(BLOCKS), reply))

    assert 'text = """\n1 2\n    3\n"""\n    return len(text) * bins\n' in source


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ("def priority_v1(item, bins):\n    return 2 * priority_v0(item, bins)",
         FailureKind.BAD_EDIT, "priority_v0"),
        ("def priority_v1(x, bins):\n    return x", FailureKind.BAD_EDIT, "(item, bins)"),
        ("async def priority_v1(item, bins):\n    return -bins", FailureKind.NO_CODE,
         "priority_v1"),
        ("def other(a):\n    return 1\n\ndef more(a):\n    return 2", FailureKind.NO_CODE,
         "priority_v1"),
        ("def priority_v1(item, bins):\n    return (", FailureKind.SYNTAX, "line 2"),
        ("I would not change it.", FailureKind.NO_CODE, "no body"),
        ("Sorry", FailureKind.NO_CODE, "no body"),
        ("I'm sorry, but I can't help with that.", FailureKind.REFUSED, "declined"),
        ("    if item > 9:\n        return priority(9, bins)\n    return -bins",
         FailureKind.UNCHANGED, "equals"),
        ("", FailureKind.NO_CODE, "empty"),
    ],
)  # fmt: skip
def test_a_reply_without_a_next_version_reports_the_reason(
    reply: str, kind: FailureKind, says: str
) -> None:
    child = completed(brief_of(BLOCKS), reply)

    assert isinstance(child, Failure), child
    assert child.kind is kind
    assert says in child.detail


def test_a_function_that_was_cut_off_is_a_failure() -> None:
    reply = "def priority_v1(item, bins):\n    score = -bins\n    if item"

    child = completed(brief_of(BLOCKS), reply, "length")

    assert isinstance(child, Failure)
    assert "cut off" in child.detail


def test_a_parent_without_the_function_sends_no_prompt() -> None:
    with pytest.raises(StopIteration) as ended:
        next(COMPLETE.converse(brief_of("x = 1\n")))

    [child] = ended.value.value
    assert child.kind is FailureKind.NO_CODE
    assert "prompts.function" in child.detail
