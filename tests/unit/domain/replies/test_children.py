import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies import fences
from app.domain.replies.children import read_edited, read_rewritten
from app.domain.replies.reasoning import without_thoughts

RULES = EditRules()
PARENT = Program("import math\n# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\nprint(x)\n")
CHILD = PARENT.source.replace("x = 1", "x = 2")
FREE = Program("x = 1\n")


def fenced(source: str, language: str = "python") -> str:
    return f"```{language}\n{source}```\n"


def rewritten(
    text: str, parent: Program = PARENT, finish: str = "stop", rules: EditRules = RULES
) -> Child:
    return read_rewritten(Completion(text, finish=finish), parent, rules)


def source_of(child: Child) -> str:
    assert isinstance(child, Offspring), child
    return child.program.source


def failure_of(child: Child) -> Failure:
    assert isinstance(child, Failure), child
    return child


def test_a_fenced_program_is_the_child() -> None:
    assert source_of(rewritten("Here it is:\n" + fenced(CHILD))) == CHILD


@pytest.mark.parametrize("label", ["py", "Python", "python3", "python title=x.py"])
def test_a_fence_label_never_enters_the_program(label: str) -> None:
    assert source_of(rewritten(fenced(CHILD, label))) == CHILD


def test_a_fence_in_the_language_of_the_parent_goes_before_an_earlier_fence() -> None:
    text = fenced("pip install x\n", "bash") + fenced("x = 3\n")

    assert source_of(rewritten(text, FREE)) == "x = 3\n"


def test_without_a_fence_in_the_language_the_last_fence_is_the_program() -> None:
    assert source_of(rewritten(fenced("x = 3\n", "") + fenced("x = 4\n", ""), FREE)) == "x = 4\n"


def test_a_fence_with_the_markers_of_the_parent_goes_before_a_snippet() -> None:
    assert source_of(rewritten(fenced("x = 2\n") + "in full:\n" + fenced(CHILD))) == CHILD


def test_an_indented_fence_loses_its_indentation() -> None:
    text = "- so:\n  ```python\n  if True:\n      x = 3\n  ```\n"

    assert source_of(rewritten(text, FREE)) == "if True:\n    x = 3\n"


def test_a_longer_fence_holds_shorter_ones() -> None:
    text = '````python\nx = """\n```\n"""\n````\n'

    assert source_of(rewritten(text, FREE)) == 'x = """\n```\n"""\n'


def test_a_fence_in_a_docstring_does_not_end_the_program() -> None:
    source = 'def f():\n    """Doubles.\n\n    ```\n    f()\n    ```\n    """\n    return 2\n'

    assert source_of(rewritten(fenced(source), FREE)) == source


def test_a_fence_with_a_label_in_prose_does_not_end_it() -> None:
    source = "Answer with code:\n```python\nx = 1\n```\nand nothing else.\n"

    child = rewritten(fenced(source, "markdown"), Program("Answer.\n", "markdown"))

    assert source_of(child) == source


@pytest.mark.parametrize("name", ["thinking", "reasoning", "think"])
def test_tags_of_reasoning_in_a_fence_belong_to_the_program(name: str) -> None:
    source = f"Answer so:\n<{name}>\nsteps\n</{name}>\nthen the answer.\n"
    reply = f"<think>\nLet me see.\n</think>\n{fenced(source, 'text')}"

    assert source_of(rewritten(reply, Program("Answer.\n", "text"))) == source


def test_an_unfenced_program_is_accepted_if_it_parses() -> None:
    assert source_of(rewritten("x = 5\n", FREE)) == "x = 5\n"


@pytest.mark.parametrize(
    "text",
    ["Sorry", "I cannot improve it further.", "I cannot see how to write it better.", "x == 1"],
)
def test_prose_is_no_program_even_if_python_can_parse_it(text: str) -> None:
    assert failure_of(rewritten(text, FREE)).kind is FailureKind.NO_CODE


def test_a_prose_program_may_be_the_whole_reply() -> None:
    child = rewritten("Answer politely.", Program("Answer.", "text"))

    assert source_of(child) == "Answer politely.\n"


def test_a_program_in_another_language_needs_a_fence() -> None:
    parent = Program("fn main() {}\n", "rust")

    assert failure_of(rewritten("fn main() { 1 }", parent)).kind is FailureKind.NO_CODE
    assert source_of(rewritten(fenced("fn main() { 1 }\n", "rs"), parent)) == "fn main() { 1 }\n"


def test_changes_outside_the_regions_are_undone() -> None:
    child = rewritten(fenced(CHILD.replace("print(x)", "print(99)")))

    assert source_of(child) == CHILD


def test_regions_are_enforced_only_if_the_problem_requires_it() -> None:
    free = EditRules(enforce_blocks=False)
    changed = CHILD.replace("print(x)", "print(99)")

    assert source_of(rewritten(fenced(changed), rules=free)) == changed


def test_a_child_of_windows_line_ends_keeps_them() -> None:
    parent = Program("x = 1\r\ny = 2\r\n")

    assert source_of(rewritten(fenced("x = 3\ny = 2\n"), parent)) == "x = 3\r\ny = 2\r\n"


def test_a_reply_cut_off_inside_its_program_reports_it() -> None:
    failure = failure_of(rewritten("```python\nx = ", FREE, finish="length"))

    assert failure.kind is FailureKind.NO_CODE
    assert "cut off at its token limit" in failure.detail


def test_a_reply_cut_off_after_its_program_is_complete() -> None:
    text = fenced("x = 3\n") + "This is because"

    assert source_of(rewritten(text, FREE, finish="length")) == "x = 3\n"


def test_an_open_fence_is_a_program_if_the_model_had_finished() -> None:
    assert source_of(rewritten("```python\nx = 3\n", FREE)) == "x = 3\n"


def test_a_withheld_reply_is_refused() -> None:
    failure = failure_of(rewritten("", finish="content_filter"))

    assert failure.kind is FailureKind.REFUSED


@pytest.mark.parametrize(
    "text",
    [
        "I cannot help with that.",
        "I'm sorry, but I can't assist with that request.",
        "I’m really sorry, but I’m unable to comply.",
        "Sorry, I can't provide that code.",
        "I apologize, but I am not able to do that.",
        "Unfortunately, I won't generate this.",
        "As an AI language model, I cannot write such a program.",
        "As a large language model, I can't help with that.",
        "I cannot in good conscience help with that.",
        "I won't be able to help with that.",
        "I must respectfully decline.",
        "I'm sorry, but I'm not comfortable helping with this.",
        "I refuse to write this.",
    ],
)
def test_a_model_that_declines_is_refused(text: str) -> None:
    assert failure_of(rewritten(text, FREE)).kind is FailureKind.REFUSED
    assert failure_of(edited(text)).kind is FailureKind.REFUSED
    assert failure_of(rewritten(text, Program("Answer.", "text"))).kind is FailureKind.REFUSED


def test_an_apology_beside_a_program_is_no_refusal() -> None:
    text = "Sorry, I can't do this in one line:\n" + fenced("x = 3\n")

    assert source_of(rewritten(text, FREE)) == "x = 3\n"


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_reply_holds_no_code(text: str) -> None:
    assert failure_of(rewritten(text)).kind is FailureKind.NO_CODE


def test_a_reply_of_reasoning_only_reports_it() -> None:
    failure = failure_of(rewritten("<think>\nhm\n" + fenced(CHILD), finish="length"))

    assert failure.kind is FailureKind.NO_CODE
    assert "nothing but reasoning" in failure.detail
    assert "cut off" in failure.detail


def test_a_program_over_the_limit_is_too_long() -> None:
    failure = failure_of(
        rewritten(fenced("x = 3\n" * 10), FREE, rules=EditRules(max_code_chars=50))
    )

    assert failure.kind is FailureKind.TOO_LONG
    assert "60" in failure.detail
    assert "50" in failure.detail


def test_a_syntax_error_is_reported_with_its_line() -> None:
    failure = failure_of(rewritten(fenced("x = 1\ny = (2\nz = 3\n"), FREE))

    assert failure.kind is FailureKind.SYNTAX
    assert "line 2" in failure.detail
    assert "y = (2" in failure.detail


@pytest.mark.parametrize("source", ["x = \0\n", "x = " + "(" * 2000 + ")" * 2000 + "\n"])
def test_a_program_too_deep_for_the_parser_is_a_syntax_failure(source: str) -> None:
    assert failure_of(rewritten(fenced(source), FREE)).kind is FailureKind.SYNTAX


@pytest.mark.parametrize("text", ["x = 1\n", "x=1  # the same\n", '"""Doc."""\nx = 1\n'])
def test_a_child_that_differs_in_layout_only_is_unchanged(text: str) -> None:
    assert failure_of(rewritten(fenced(text), FREE)).kind is FailureKind.UNCHANGED


@pytest.mark.parametrize(
    "text",
    [
        "<think>\nlong\nthought\n</think>\nanswer",
        "<thinking>x</thinking>answer",
        "the prompt opened it\n</think>\nanswer",
        "the prompt opened it.</think>\n\nanswer",
        "answer<think-not>",
    ],
)
def test_reasoning_is_removed(text: str) -> None:
    assert without_thoughts(text).strip() in ("answer", "answer<think-not>")


def test_code_inside_the_reasoning_is_not_the_program() -> None:
    text = f"<think>\n{fenced('x = 7' + chr(10))}</think>\n{fenced('x = 8' + chr(10))}"

    assert source_of(rewritten(text, FREE)) == "x = 8\n"


def edited(text: str, finish: str = "stop") -> Child:
    return read_edited(Completion(text, finish=finish), PARENT, RULES)


def test_edits_make_a_child_with_a_description_of_the_changes() -> None:
    child = edited("<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE")

    assert source_of(child) == CHILD
    assert isinstance(child, Offspring)
    assert child.changes == "Change 1: 'x = 1' to 'x = 2'"


def test_edits_only_outside_the_regions_are_a_bad_edit() -> None:
    child = edited("<<<<<<< SEARCH\nprint(x)\n=======\nprint(2)\n>>>>>>> REPLACE")

    assert failure_of(child).kind is FailureKind.BAD_EDIT


TWICE = Program("x = 1\n# EVOLVE-BLOCK-START\nx = 1\ny = x\n# EVOLVE-BLOCK-END\n")


@pytest.mark.parametrize(("enforced", "changed"), [(True, 2), (False, 0)])
def test_a_match_inside_a_region_goes_before_a_match_outside(enforced: bool, changed: int) -> None:
    reply = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE"
    child = read_edited(Completion(reply), TWICE, EditRules(enforce_blocks=enforced))

    lines = source_of(child).split("\n")
    assert [number for number, line in enumerate(lines) if line == "x = 2"] == [changed]


def test_an_edit_that_the_regions_undid_is_not_described() -> None:
    outside = "<<<<<<< SEARCH\nprint(x)\n=======\nprint(2)\n>>>>>>> REPLACE\n"
    child = edited(outside + "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE")

    assert source_of(child) == CHILD
    assert isinstance(child, Offspring)
    assert child.changes == "Change 1: 'x = 1' to 'x = 2'"


def test_edits_that_change_nothing_are_unchanged() -> None:
    child = edited("<<<<<<< SEARCH\nx = 1\n=======\nx = 1\n>>>>>>> REPLACE")

    assert failure_of(child).kind is FailureKind.UNCHANGED


def test_edits_cut_off_in_a_block_report_it() -> None:
    failure = failure_of(edited("<<<<<<< SEARCH\nx = 1\n=======\nx =", "length"))

    assert failure.kind is FailureKind.BAD_EDIT
    assert "cut off at its token limit" in failure.detail
    assert "Block 1" in failure.detail


def test_complete_blocks_before_the_cut_apply_if_each_matches_exactly_once() -> None:
    whole = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n"
    child = edited(whole + "<<<<<<< SEARCH\nprint(x", "length")

    assert source_of(child) == CHILD
    assert isinstance(child, Offspring)
    assert "cut off here" in child.changes


def test_complete_blocks_before_the_cut_do_not_apply_by_likeness() -> None:
    nearly = "<<<<<<< SEARCH\n  x = 1  \n=======\n  x = 2\n>>>>>>> REPLACE\n"
    failure = failure_of(edited(nearly + "<<<<<<< SEARCH\nprint(x", "length"))

    assert failure.kind is FailureKind.BAD_EDIT
    assert "cut off" in failure.detail


def test_a_rewrite_describes_its_changes_in_prose() -> None:
    child = rewritten(fenced(CHILD))

    assert isinstance(child, Offspring)
    assert child.changes == "Change 1: 'x = 1' to 'x = 2'"


def test_a_single_program_of_a_reply_is_compared_with_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[Program] = []
    monkeypatch.setattr(fences, "fingerprint", lambda program: compared.append(program) or "")
    passages = [fences.Fence("python", CHILD, closed=True)]

    assert fences.likeliest_program(passages, PARENT) == passages[0]
    assert fences.likeliest_program([], PARENT) is None
    assert compared == []
