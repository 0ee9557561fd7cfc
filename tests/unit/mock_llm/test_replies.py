"""The replies, faults and amounts of the simulated model."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import (
    Ancestry,
    Brief,
    Completion,
    Draft,
    FailedChild,
    Offspring,
    ProgramRecord,
)
from app.domain.operators.complete import COMPLETE
from app.domain.operators.diff import DIFF
from app.domain.operators.function import FUNCTION
from app.domain.operators.rewrite import REWRITE
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.prompting.directions import read_directions
from app.domain.prompting.prompts import strategist_prompt
from app.domain.replies.edit_blocks import parse_edits
from app.domain.source.edits import apply_edits
from mock_llm.draws import FaultRates, InjectedFault, read_amount
from mock_llm.engine import PrefixCache
from mock_llm.replies import cut, mutating_reply, program_in, read_script, search_replace

PARENT = Program(
    """\
# EVOLVE-BLOCK-START
def value(x):
    a = 1.5
    b = 1.5

    return a * x + b
# EVOLVE-BLOCK-END
"""
)
OTHER = Program("def value(x):\n    return 0.25\n")
FAILED = FailedChild(
    Failure(FailureKind.RUNTIME, "ValueError"), OTHER, artifacts={"case": "x = 1\ny = 2"}
)


def brief() -> Brief:
    draft = Draft(0, 0, 0, 1, (PARENT.id,), (OTHER.id,))
    known = {
        PARENT.id: ProgramRecord(PARENT, 1.0, changes="Change 1: 'c' to 'd'"),
        OTHER.id: ProgramRecord(OTHER, 0.5),
    }
    ancestry = Ancestry((ProgramRecord(OTHER, 0.5, changes="Change 1: 'a' to 'b'"),), (FAILED,))
    siblings = (ProgramRecord(OTHER, 0.25, changes="Change 1: 'b' to 'c'"),)
    return Brief(
        "Improve it.", "python", (draft,), known, siblings=siblings, ancestry=ancestry, seed="1"
    )


@pytest.mark.parametrize(
    "operator", [DIFF, REWRITE, FUNCTION, COMPLETE], ids=lambda operator: operator.name
)
def test_the_operators_that_ask_a_model_read_a_child_from_the_reply(operator):
    children = set()
    for n in range(30):
        conversation = operator.converse(brief())
        [prompt] = next(conversation)
        reply = mutating_reply(prompt.system + prompt.user, prompt.user, Random(n))
        with pytest.raises(StopIteration) as ended:
            conversation.send([Completion(reply)])
        [child] = ended.value.value
        assert isinstance(child, Offspring), (reply, child)
        children.add(child.program.id)

    assert len(children) > 5
    assert PARENT.id not in children


def test_the_same_seed_gives_the_same_reply():
    prompt = f"```python\n{PARENT.source}```"

    assert mutating_reply(prompt, prompt, Random(7)) == mutating_reply(prompt, prompt, Random(7))


def test_the_program_is_below_the_heading_and_no_example():
    prompt = (
        "# Current Program\n```python\na = 1\nb = 2\n```\n"
        "# Task\n```\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n```\n"
        "```python\nthe\nform\n```\n"
    )

    found = program_in(prompt)

    assert found is not None
    assert found.text == "a = 1\nb = 2\n"


def test_a_strategist_gets_as_many_different_directions_as_it_asks_for():
    [draft] = brief().drafts
    prompt = strategist_prompt(replace(brief(), drafts=(draft, draft, draft)))

    reply = mutating_reply(prompt.system + prompt.user, prompt.user, Random(1))

    assert len({one.text for one in read_directions(Completion(reply), 9)}) == 3


def test_the_line_that_failed_is_removed_whatever_its_number():
    lines = [f"x{n} = {n}" for n in range(1, 13)]
    source = "\n".join(lines)
    prompt = f"# Current program, which failed\n\n```python\n{source}\n```\n\nline 12: NameError\n"
    reply = mutating_reply(prompt, prompt, Random(1))
    assert "line 12 failed and is removed" in reply
    assert "x1 = 1\n" in reply
    assert "x12" not in reply


def test_a_prompt_without_a_program_gets_a_reply_without_code():
    assert "```" not in mutating_reply("hello", "hello", Random(0))


def test_a_program_of_another_language_has_one_number_changed():
    prompt = "```rust\nfn f() -> f64 {\n    2.5\n}\n```"

    reply = mutating_reply(prompt, prompt, Random(1))

    assert "```rust" in reply
    assert "2.5\n" not in reply


LINE = st.sampled_from(["a = 1", "b = 2", "    c = 3", "", "d = 4", "e = 5"])


@example(["b = 2", "a = 1", "b = 2", "b = 2", "    c = 3"], ["b = 2", "", "    c = 3", "b = 2"])
@given(st.lists(LINE, min_size=1, max_size=12), st.lists(LINE, min_size=1, max_size=12))
def test_blocks_turn_one_text_into_the_other_but_for_blank_lines(old: list[str], new: list[str]):
    before, after = "\n".join(["start", *old, "end"]), "\n".join(["start", *new, "end"])
    blocks = search_replace(before, after)
    if not blocks:
        assert before == after
        return

    edits = parse_edits(blocks, EditRules())
    assert not isinstance(edits, Failure), (blocks, edits)
    made = apply_edits(before, edits)

    assert isinstance(made, str), (blocks, made)
    assert made.split() == after.split()


def test_a_reply_above_the_limit_is_cut_with_finish_reason_length():
    reply = cut("x" * 100, max_tokens=5)

    assert (len(reply.text), reply.finish, reply.tokens) == (20, "length", 5)
    assert cut("short", 5).finish == "stop"


def test_a_script_holds_a_reply_per_line_or_one_reply(tmp_path: Path):
    lines = tmp_path / "replies.jsonl"
    lines.write_text('"one"\n\n{"content": "two"}\n')
    whole = tmp_path / "reply.md"
    whole.write_text("```python\nx = 1\n```\n")

    assert read_script(lines) == ["one", "two"]
    assert read_script(whole) == ["```python\nx = 1\n```\n"]


def test_the_error_of_a_script_names_the_line(tmp_path: Path):
    path = tmp_path / "replies.jsonl"
    path.write_text('"one"\n{"text": 1}\n')

    with pytest.raises(ValueError, match=r"replies.jsonl:2"):
        read_script(path)


@pytest.mark.parametrize("text", ["0.8", "normal:0.8,0.2", "lognormal:0.8,0.5"])
def test_amounts_are_drawn_about_their_middle_and_never_negative(text: str):
    rng = Random(1)
    drawn = sorted(read_amount(text).draw(rng) for _ in range(1001))

    assert drawn[0] >= 0.0
    assert drawn[500] == pytest.approx(0.8, rel=0.1)
    assert str(read_amount(text)) == text


@pytest.mark.parametrize("text", ["", "fast", "-1", "normal:1", "uniform:0,1", "nan", "normal:a,b"])
def test_a_wrong_amount_is_refused_with_the_forms(text: str):
    with pytest.raises(ValueError, match="lognormal"):
        read_amount(text)


def test_faults_occur_at_the_given_rates():
    rates = FaultRates(too_many=0.1, broken=0.05, hang=0.02)
    rng = Random(3)

    drawn = [rates.draw(rng) for _ in range(10_000)]

    assert drawn.count(InjectedFault.TOO_MANY) == pytest.approx(1000, rel=0.15)
    assert drawn.count(InjectedFault.BROKEN) == pytest.approx(500, rel=0.2)
    assert drawn.count(InjectedFault.HANG) == pytest.approx(200, rel=0.3)
    assert InjectedFault.GARBAGE not in drawn


@pytest.mark.parametrize("rates", [{"hang": -0.1}, {"hang": 1.1}, {"hang": 0.6, "broken": 0.6}])
def test_rates_that_are_no_shares_are_refused(rates: dict[str, float]):
    with pytest.raises(ValueError, match="rate"):
        FaultRates(**rates)


def test_whole_blocks_from_the_beginning_are_cached():
    cache = PrefixCache()
    task = "the same task for all of them. " * 40

    assert cache.cached_tokens(task + "program one") == 0
    assert cache.cached_tokens(task + "program two") == len(task) // 64 * 16
    assert cache.cached_tokens("9 " + task) == 0
