"""Replies in which a model changes its mind, quotes an example, or shows an older program.

All of them are written for this test.  `{bad}` stands for what the model withdraws, `{good}` for
its answer, and `{parent}` for the program that it was given.
"""

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.children import read_edited, read_rewritten
from app.domain.replies.function_body import read_completed
from app.domain.source.edits import summary

SOURCE = """\
import math

# EVOLVE-BLOCK-START
def f(x):
    a = 1.0
    b = 0.0
    return a * x + b


def g(x):
    return x
# EVOLVE-BLOCK-END


def main():
    return f(3) + g(4)
"""
MARKED = Program(SOURCE)
FREE = Program("".join(row for row in SOURCE.splitlines(True) if "EVOLVE" not in row))
BARE = Program("b = 0.0\nprint(3 + b)\n")
RUST = Program("fn f(x: f64) -> f64 {\n    let b = 0.0;\n    x + b\n}\n\nfn main() {}\n", "rust")
PARENTS = {"regions": MARKED, "no regions": FREE, "statements": BARE, "rust": RUST}

TEXTS = {
    "a correction": "First thought:\n{bad}\nNo, 999 is far too much. Corrected:\n{good}\n",
    "a correction with a heading": "## First draft\n{bad}\n\n## Final version\n{good}\nDone.",
    "a correction without a word": "{bad}\n{good}\n",
    "a wait": "{bad}\nWait, that overflows. Let me redo it.\n\n{good}",
    "three thoughts": "{bad}\nHmm, no.\n{bad}\nOops, the same again:\n{good}",
    "an example of use": "{good}\nExample usage:\n```\n{use}```\n",
    "an example of use in the language": "{good}\nYou can test it with:\n{usefence}\n",
    "a test under a heading": "{good}\n### Test\n{usefence}",
    "its output": "{good}\nOutput:\n```\n3.25\n```\n",
    "before and after": "Before:\n{bad}\nAfter:\n{good}\n",
    "the original at the end": "{good}\nFor comparison, the original program:\n{parent}\n",
    "an older version at the end": "{good}\nThe previous version was:\n{bad}\n",
    "an alternative that is worse": "{good}\nAlternatively:\n{bad}\nBut that is slower, so keep the"
    " first.",
    "the answer of the original's improvement": "The original program is linear.\n{bad}\n"
    "Here is the improved version of the original program:\n{good}\n",
    "an open fence before": "```python\nb = \n\nWait, in full:\n{good}",
    "a commands fence after": "{good}\nRun it:\n```bash\npython program.py\n```\n",
}


def fenced(program: Program, source: str) -> str:
    return f"```{program.language}\n{source}```"


def filled(text: str, parent: Program) -> str:
    zero = "0.0"
    use = "main();\n" if parent is RUST else "print(f(3))\n"
    return (
        text.replace("{bad}", fenced(parent, parent.source.replace(f"b = {zero}", "b = 999.0")))
        .replace("{good}", fenced(parent, parent.source.replace(f"b = {zero}", "b = 0.25")))
        .replace("{parent}", fenced(parent, parent.source))
        .replace("{usefence}", fenced(parent, use))
        .replace("{use}", use)
    )


def source_of(child: Child) -> str:
    assert isinstance(child, Offspring), child
    return child.program.source


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", PARENTS)
def test_the_last_program_that_is_not_withdrawn_is_the_answer(kind: str, name: str) -> None:
    parent = PARENTS[kind]
    child = read_rewritten(Completion(filled(TEXTS[name], parent)), parent, EditRules())

    assert source_of(child) == parent.source.replace("b = 0.0", "b = 0.25")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", ["regions", "no regions", "rust"])
def test_a_whole_program_in_the_place_of_blocks_is_the_last_one_too(kind: str, name: str) -> None:
    parent = PARENTS[kind]
    child = read_edited(Completion(filled(TEXTS[name], parent)), parent, EditRules())

    assert source_of(child) == parent.source.replace("b = 0.0", "b = 0.25")


FUNCTION = "```python\ndef f(x):\n    a = 1.0\n    b = {b}\n    return a * x + b\n```"
BODY = "```python\n    a = 1.0\n    b = {b}\n    return a * x + b\n```"


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "an open fence before"])
@pytest.mark.parametrize("form", [FUNCTION, FUNCTION.replace("f(x)", "f_v1(x)"), BODY])
def test_the_last_function_that_is_not_withdrawn_is_the_answer(form: str, name: str) -> None:
    text = (
        TEXTS[name]
        .replace("{bad}", form.replace("{b}", "999.0"))
        .replace("{good}", form.replace("{b}", "0.25"))
        .replace("{parent}", form.replace("{b}", "0.0"))
        .replace("{usefence}", "```python\nprint(f(3))\n```")
        .replace("{use}", "print(f(3))\n")
    )
    child = read_completed(Completion(text), MARKED, "f", 1, EditRules(), summary)

    assert source_of(child) == SOURCE.replace("b = 0.0", "b = 0.25")


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"


BAD, GOOD = block("    b = 0.0", "    b = 999.0"), block("    b = 0.0", "    b = 0.25")
WHOLE = fenced(MARKED, SOURCE.replace("b = 0.0", "b = 0.25"))
WRONG = fenced(MARKED, SOURCE.replace("b = 0.0", "b = 999.0"))
CORRECTED_BLOCKS = {
    "the same search": f"First:\n{BAD}\nNo, 999 is far too much. Corrected:\n{GOOD}\n",
    "the same search without a word": f"{BAD}\n\n{GOOD}\n",
    "a search of the withdrawn line": f"{BAD}\nToo much.\n{block('    b = 999.0', '    b = 0.25')}",
    "a longer search": f"{BAD}\nNo:\n"
    + block("    a = 1.0\n    b = 0.0", "    a = 1.0\n    b = 0.25"),
    "two withdrawn for one": block("    a = 1.0", "    a = 7.0")
    + f"\n{BAD}\nScratch that.\n"
    + block("    a = 1.0\n    b = 0.0", "    a = 1.0\n    b = 0.25"),
    "an edit elsewhere is withdrawn": block("    a = 1.0", "    a = 7.0")
    + f"\nNo, that is wrong. Instead:\n{GOOD}",
    "the form, then the answer": f"{block('# the old lines', '# the new lines')}\n{GOOD}",
    "the prompt's form, then the answer": block(
        "lines of the current program, copied letter by letter", "the lines that take their place"
    )
    + f"\n{GOOD}",
    "an example of the form": f"For example:\n{block('    foo()', '    bar()')}\nMine:\n{GOOD}",
    "a whole program after blocks": f"{BAD}\nNo, that is too much. In full:\n{WHOLE}",
    "a whole program after blocks that match nowhere":
        f"{block('    c = 1', '    c = 2')}\n{WHOLE}",
    "a whole program before blocks that match nowhere":
        f"{WHOLE}\nThe change:\n{block('    c = 1', '    c = 2')}",
    "the prompt's form and the program in one fence": "```python\n"
    + block("lines of the current program, copied letter by letter", "the lines")
    + "\n\n"
    + SOURCE.replace("b = 0.0", "b = 0.25")
    + "```",
    "blocks that correct a whole program": f"{WRONG}\nToo much, so:\n"
    + block("    b = 999.0", "    b = 0.25"),
    "blocks after a withdrawn program": f"{WRONG}\nNo, that is too much. Rather:\n{GOOD}",
    "a function after blocks": f"{BAD}\nNo, wrong. Corrected:\n{FUNCTION.replace('{b}', '0.25')}",
    "a function after blocks that match nowhere":
        f"{block('    c = 1', '    c = 2')}\nIn full:\n{FUNCTION.replace('{b}', '0.25')}",
    "the current program for reference":
        f"{GOOD}\nThe current program was:\n{fenced(MARKED, SOURCE)}",
    "words for marks": "### SEARCH\n```python\n    b = 0.0\n```\n\n### REPLACE\n```python\n"
    "    b = 0.25\n```\nThis moves the line up.",
    "words without indentation": "Search:\n```\nb = 0.0\n```\nReplace with:\n```\nb = 0.25\n```",
    "a function quoted from another program": block(
        "def f(x):\n    return 5 * x", "def f(x):\n    a = 1.0\n    b = 0.25\n    return a * x + b"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CORRECTED_BLOCKS)
@pytest.mark.parametrize("read", [read_edited, read_rewritten])
def test_a_block_that_is_corrected_or_only_an_example_does_not_count(read, name: str) -> None:
    child = read(Completion(CORRECTED_BLOCKS[name]), MARKED, EditRules())

    assert source_of(child) == SOURCE.replace("b = 0.0", "b = 0.25")


def test_only_the_edits_that_stand_are_described() -> None:
    child = read_edited(Completion(CORRECTED_BLOCKS["the same search"]), MARKED, EditRules())

    assert isinstance(child, Offspring)
    assert child.changes == "Change 1: 'b = 0.0' to 'b = 0.25'"


def test_blocks_that_add_to_each_other_all_count() -> None:
    second = block("    return x", "    return 2 * x")
    child = read_edited(Completion(f"{GOOD}\nWait, we also need g:\n{second}"), MARKED, EditRules())

    expected = SOURCE.replace("b = 0.0", "b = 0.25").replace("    return x\n", "    return 2 * x\n")
    assert source_of(child) == expected


def test_equal_searches_change_one_line_after_the_other() -> None:
    parent = Program("def f():\n    step()\n    step()\n    return 1\n")
    edit = block("    step()", "    leap()")
    child = read_edited(Completion(f"{edit}\n{edit}"), parent, EditRules())

    assert source_of(child) == parent.source.replace("step", "leap")


def test_a_block_that_quotes_the_change_does_not_replace_the_program() -> None:
    whole = SOURCE.replace("b = 0.0", "b = 0.25").replace("a = 1.0", "a = 3.0")
    reply = f"{fenced(MARKED, whole)}\nThe main change is:\n{GOOD}\n"

    assert source_of(read_rewritten(Completion(reply), MARKED, EditRules())) == whole


@pytest.mark.parametrize("read", [read_edited, read_rewritten])
@pytest.mark.parametrize("parent", [MARKED, FREE])
def test_a_function_after_the_program_corrects_it(read, parent: Program) -> None:
    whole = parent.source.replace("b = 0.0", "b = 999.0").replace(
        "    return x\n", "    return 2 * x\n"
    )
    text = f"{fenced(parent, whole)}\nNo, f must be:\n{FUNCTION.replace('{b}', '0.25')}"

    assert source_of(read(Completion(text), parent, EditRules())) == whole.replace("999.0", "0.25")


@pytest.mark.parametrize("read", [read_edited, read_rewritten])
@pytest.mark.parametrize("parent", [MARKED, FREE])
def test_a_function_alone_replaces_that_of_the_parent(read, parent: Program) -> None:
    child = read(Completion(FUNCTION.replace("{b}", "0.25")), parent, EditRules())

    assert source_of(child) == parent.source.replace("b = 0.0", "b = 0.25")


def test_helpers_and_imports_of_a_function_come_with_it() -> None:
    text = (
        "```python\nimport random\n\n\ndef helper(x):\n    return random.random() * x\n\n\n"
        "def g(x):\n    return helper(x)\n```"
    )
    source = source_of(read_edited(Completion(text), MARKED, EditRules()))

    names: dict[str, object] = {}
    exec(compile(source, "program", "exec"), names)
    assert {"helper", "random", "f", "g", "main"} <= set(names)
    assert source.index("EVOLVE-BLOCK-START") < source.index("def helper")


def test_lines_that_dots_stand_for_are_not_taken_for_the_program() -> None:
    sketch = FUNCTION.replace("    b = {b}\n", "    # ... rest of the code unchanged ...\n")
    text = f"{fenced(FREE, FREE.source.replace('b = 0.0', 'b = 0.25'))}\nIn short:\n{sketch}"

    child = read_rewritten(Completion(text), FREE, EditRules())

    assert source_of(child) == FREE.source.replace("b = 0.0", "b = 0.25")


@pytest.mark.parametrize("parent", [MARKED, FREE])
def test_the_last_complete_program_is_the_answer_where_the_next_is_cut_off(
    parent: Program,
) -> None:
    good = fenced(parent, parent.source.replace("b = 0.0", "b = 0.25"))
    text = f"{good}\nEven better:\n```python\n{parent.source[:60]}"

    child = read_rewritten(Completion(text, finish="length"), parent, EditRules())

    assert source_of(child) == parent.source.replace("b = 0.0", "b = 0.25")


@pytest.mark.parametrize("parent", [MARKED, FREE])
def test_a_sketch_is_not_the_answer_where_the_program_is_cut_off(parent: Program) -> None:
    text = f"The idea:\n```python\nb = 0.25\n```\nIn full:\n```python\n{parent.source[:60]}"

    child = read_rewritten(Completion(text, finish="length"), parent, EditRules())

    assert isinstance(child, Failure)
    assert child.kind is FailureKind.NO_CODE
    assert "cut off at its token limit" in child.detail


def test_a_correction_with_a_syntax_error_does_not_bring_the_withdrawn_program_back() -> None:
    text = f"{WRONG}\nNo, that is too much. Corrected:\n" + fenced(
        MARKED, SOURCE.replace("b = 0.0", "b = (0.25")
    )
    child = read_rewritten(Completion(text), MARKED, EditRules())

    assert isinstance(child, Failure)
    assert child.kind is FailureKind.SYNTAX
