"""Reasoning that endpoints leave in a reply, under names that are known and under others."""

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.children import read_edited, read_rewritten
from app.domain.replies.function_body import read_completed
from app.domain.replies.reasoning import without_thoughts
from app.domain.source.edits import summary

SOURCE = "def f(x):\n    b = 0.0\n    return x + b\n\n\ndef g(x):\n    return f(x)\n"
PARENT = Program(SOURCE)
RULES = EditRules()


def block(value: str) -> str:
    return f"<<<<<<< SEARCH\n    b = 0.0\n=======\n    b = {value}\n>>>>>>> REPLACE"


def program(value: str) -> str:
    return f"```python\n{SOURCE.replace('b = 0.0', f'b = {value}')}```"


def function(value: str) -> str:
    return f"```python\ndef f(x):\n    b = {value}\n    return x + b\n```"


def read(form: str, text: str, finish: str = "stop") -> Child:
    reply = Completion(text, finish=finish)
    if form == "complete":
        return read_completed(reply, PARENT, "f", 1, RULES, summary)
    return (read_edited if form == "diff" else read_rewritten)(reply, PARENT, RULES)


FORMS = {"diff": block, "rewrite": program, "complete": function}
TAGS = [
    *("think", "thinking", "thought", "reasoning", "scratchpad", "reflection", "THINK", "Thought"),
    *("analysis", "inner_monologue", "antThinking", "mm:think", "chain_of_thought", "xyz", "step1"),
    *("plan", "musings", "my-notes"),
]
ROUND = {
    **{f"<{name}>": (f"<{name}>", f"</{name}>") for name in TAGS},
    "attributes": ('<think time="3" effort="high">', "</think>"),
    "[THINK]": ("[THINK]", "[/THINK]"),
    "[REASONING]": ("[REASONING]", "[/REASONING]"),
    "Kimi": ("◁think▷", "◁/think▷"),
    "words of thought": ("<|begin_of_thought|>", "<|end_of_thought|>"),
    "Cohere": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "bars": ("<|think|>", "<|/think|>"),
    "gpt-oss": ("<|channel|>analysis<|message|>",
                "<|end|><|start|>assistant<|channel|>final<|message|>"),
    "gpt-oss without a final channel": ("<|channel|>analysis<|message|>", "<|end|>"),
    "gpt-oss without marks": ("analysisWe need to think. ", "assistantfinal"),
    "Gemma": ("<|channel>thought", "<channel|>"),
    "MedGemma": ("<unused94>thought", "<unused95>"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUND)
@pytest.mark.parametrize("form", FORMS)
def test_what_stands_between_the_tags_before_the_answer_is_no_answer(form: str, name: str) -> None:
    opening, closing = ROUND[name]
    thought = f"Maybe so:\n{FORMS[form]('999.0')}\nor {block('99.0')} or\n{program('9.0')}\nFine."

    child = read(form, f"{opening}\n{thought}\n{closing}\n{FORMS[form]('0.25')}\n")

    assert isinstance(child, Offspring), child
    assert child.program.source == SOURCE.replace("b = 0.0", "b = 0.25")


@pytest.mark.parametrize("name", ["reflection", "thinking", "critique", "review"])
@pytest.mark.parametrize("form", FORMS)
def test_thoughts_after_the_answer_do_not_change_it(form: str, name: str) -> None:
    text = f"{FORMS[form]('0.25')}\n<{name}>\nOr even:\n{FORMS[form]('999.0')}\n</{name}>\n"
    child = read(form, text)

    assert isinstance(child, Offspring), child
    assert child.program.source == SOURCE.replace("b = 0.0", "b = 0.25")


@pytest.mark.parametrize("name", ["answer", "solution", "code", "response", "final", "edit"])
@pytest.mark.parametrize("form", FORMS)
def test_the_answer_may_stand_between_tags(form: str, name: str) -> None:
    text = f"<thinking>\nHm.\n</thinking>\n<{name}>\n{FORMS[form]('0.25')}\n</{name}>"
    child = read(form, text)

    assert isinstance(child, Offspring), child
    assert child.program.source == SOURCE.replace("b = 0.0", "b = 0.25")


def test_every_edit_between_tags_of_its_own_counts() -> None:
    second = "<<<<<<< SEARCH\n    return f(x)\n=======\n    return 2 * f(x)\n>>>>>>> REPLACE"
    child = read("diff", f"<step>\n{block('0.25')}\n</step>\n<step>\n{second}\n</step>")

    assert isinstance(child, Offspring), child
    assert "b = 0.25" in child.program.source
    assert "return 2 * f(x)" in child.program.source


@pytest.mark.parametrize(
    "opening",
    ["<think>", "<scratchpad>", "<reflection>", "[THINK]", "<|channel|>analysis<|message|>",
     "<|begin_of_thought|>", "<unused94>thought"],
)  # fmt: skip
@pytest.mark.parametrize("form", FORMS)
def test_a_thought_that_never_ends_is_no_answer(form: str, opening: str) -> None:
    child = read(form, f"{opening}\nMaybe:\n{FORMS[form]('999.0')}\nor", finish="length")

    assert isinstance(child, Failure)
    assert child.kind is FailureKind.NO_CODE
    assert "nothing but reasoning" in child.detail


@pytest.mark.parametrize("name", ["scratchpad", "think", "musings"])
@pytest.mark.parametrize("form", FORMS)
def test_a_closing_tag_alone_ends_the_thought(form: str, name: str) -> None:
    child = read(form, f"Maybe:\n{FORMS[form]('999.0')}\n</{name}>\n{FORMS[form]('0.25')}")

    assert isinstance(child, Offspring), child
    assert child.program.source == SOURCE.replace("b = 0.0", "b = 0.25")


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_between_tags_ends_a_thought_that_is_not_closed(form: str) -> None:
    child = read(
        form, f"<think>\n{FORMS[form]('999.0')}\n<answer>\n{FORMS[form]('0.25')}\n</answer>"
    )

    assert isinstance(child, Offspring), child
    assert child.program.source == SOURCE.replace("b = 0.0", "b = 0.25")


def test_an_unfenced_program_after_a_thought_or_between_tags_is_read() -> None:
    source = SOURCE.replace("b = 0.0", "b = 0.25")
    for text in (
        f"<scratchpad>\nHm.\n</scratchpad>\n{source}",
        f"<answer>\n{source}</answer>",
        f"Here it is.\n<code>\n{source}</code>\n",
    ):
        child = read("rewrite", text)

        assert isinstance(child, Offspring), child
        assert child.program.source == source


@pytest.mark.parametrize("name", ["xyz", "plan", "reflection"])
def test_tags_inside_a_fence_belong_to_the_program(name: str) -> None:
    source = f"Answer so:\n<{name}>\nsteps\n</{name}>\nthen the answer.\n"

    assert without_thoughts(f"```text\n{source}```\n") == f"```text\n{source}```\n"


def test_tags_of_html_around_no_code_stay() -> None:
    assert without_thoughts("<div>\nx\n</div>\n") == "<div>\nx\n</div>\n"
