"""Reply forms: the text with which a reply begins and ends."""

import json
import re
from random import Random

import pytest

from app.domain.evaluation import FailureKind
from app.domain.operator import Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.prompting.reply_forms import (
    definition_form,
    edits_form,
    program_form,
    version_form,
)
from app.domain.replies.children import read_edited, read_rewritten
from app.domain.replies.definition import read_definition
from app.domain.replies.function_body import read_completed
from app.domain.source.definitions import changeable_definitions
from app.domain.source.functions import find_function

SOURCE = '''\
"""A program."""

# EVOLVE-BLOCK-START
def search(low, high):
    """Returns the best point."""
    return low


class Solver:
    def step(self, x):
        return x


def one_line(x): return x
# EVOLVE-BLOCK-END

print(search(0, 1))
'''
PROGRAM = Program(SOURCE, "python")


def no_description(edit: object) -> str:
    return ""


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        ("search", 'def search(low, high):\n    """Returns the best point."""\n'),
        ("Solver", "class Solver:\n"),
        ("Solver.step", "def step(self, x):\n"),
        ("one_line", ""),
    ],
)
def test_a_definition_begins_with_its_header_and_docstring(name: str, opening: str) -> None:
    wanted = next(each for each in changeable_definitions(PROGRAM) if each.name == name)

    form = definition_form(PROGRAM, wanted)

    assert form.opening == f"```python\n{opening}"
    assert "\nif __name__" in form.stops
    assert "\ndef " not in form.stops, "a helper may follow"


def test_a_body_after_the_opening_becomes_a_child() -> None:
    wanted = next(each for each in changeable_definitions(PROGRAM) if each.name == "search")
    text = definition_form(PROGRAM, wanted).whole("    return high", stopped=True)

    child = read_definition(Completion(text), PROGRAM, wanted, EditRules(), no_description)

    assert isinstance(child, Offspring)
    assert "    return high\n" in child.program.source


@pytest.mark.parametrize("written", ["def search(low, high):\n    return high\n", ""])
def test_a_block_after_the_opening_becomes_a_child_with_the_text_around_it(written: str) -> None:
    rest = SOURCE[SOURCE.index("\n\nclass") : SOURCE.index("# EVOLVE-BLOCK-END")]
    form = program_form(PROGRAM)
    text = form.whole((written or "def search(low, high):\n    return 2\n") + rest, stopped=True)

    child = read_rewritten(Completion(text), PROGRAM, EditRules())

    assert form.stops == ("# EVOLVE-BLOCK-END", "\n```")
    assert isinstance(child, Offspring)
    assert child.program.source.startswith('"""A program."""\n')
    assert child.program.source.endswith("print(search(0, 1))\n")


def test_a_program_without_blocks_or_with_several_is_written_to_its_end() -> None:
    free = program_form(Program("int main() {}\n", "cpp"))
    blocks = "# EVOLVE-BLOCK-START\na = 1\n# EVOLVE-BLOCK-END\n"
    two = program_form(Program(blocks + blocks, "python"))

    assert (free.opening, free.stops) == ("```cpp\n", ("\n```",))
    assert (two.opening, two.stops) == ("```python\n# EVOLVE-BLOCK-START\n", ("\n```",))


def test_the_next_version_of_a_function_begins_with_its_header() -> None:
    own = find_function(SOURCE, "search")
    assert own is not None

    form = version_form(own, 1)
    child = read_completed(
        Completion(form.whole("    return high", stopped=True)),
        PROGRAM, "search", 1, EditRules(), no_description,
    )  # fmt: skip

    assert form.opening.startswith("```python\ndef search_v1(low, high):\n")
    assert {"\n```", "\ndef ", "\nif __name__"} <= set(form.stops)
    assert isinstance(child, Offspring)
    assert "    return high\n" in child.program.source


def derived(grammar: str, rng: Random) -> str:
    """Returns a text of a grammar: each alternative and each repetition is drawn."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    token = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|[()|?*]')

    def text(name: str) -> str:
        if name == "line":
            return rng.choice(["", "    low = 1", "x"]) + "\n"
        parts = token.findall(rules[name])
        written = []
        while parts:
            alternatives: list[list[str]] = [[]]
            group, parts = taken(parts)
            for part in group:
                if part == "|":
                    alternatives.append([])
                else:
                    alternatives[-1].append(part)
            for part in rng.choice(alternatives) if "|" in group else group:
                written.append(part)
        return "".join(repeated(written))

    def taken(parts: list[str]) -> tuple[list[str], list[str]]:
        if parts[0] == "(":
            end = parts.index(")")
            return parts[1:end], parts[end + 1 :]
        end = next((n for n, part in enumerate(parts) if part == "("), len(parts))
        return parts[:end], parts[end:]

    def repeated(parts: list[str]) -> list[str]:
        out = []
        for n, part in enumerate(parts):
            after = parts[n + 1] if n + 1 < len(parts) else ""
            if part in "?*":
                continue
            times = {"?": rng.randint(0, 1), "*": rng.randint(0, 3)}.get(after, 1)
            out += [
                str(json.loads(part)) if part.startswith('"') else text(part) for _ in range(times)
            ]
        return out

    return text("root")


def test_every_reply_of_the_grammar_of_edits_can_be_applied() -> None:
    form = edits_form(PROGRAM, EditRules())
    assert form is not None
    several = 0
    for seed in range(300):
        reply = derived(form.grammar, Random(seed))
        child = read_edited(Completion(reply), PROGRAM, EditRules(), no_description)
        several += reply.count("<<<<<<< SEARCH") > 1
        if not isinstance(child, Offspring):
            assert child.kind in (FailureKind.SYNTAX, FailureKind.UNCHANGED), (reply, child)
        else:
            assert "print(search(0, 1))" in child.program.source
    assert several > 20


def test_a_form_feed_ends_no_line_of_the_grammar() -> None:
    form = edits_form(Program("x = '\x0c'\ny = 2\n", "python"), EditRules())

    assert form is not None
    assert [line.split(" ")[0] for line in form.grammar.splitlines()][-2:] == ["at0", "at1"]


@pytest.mark.parametrize(
    ("program", "rules"),
    [
        (Program("x = 1\n" * 500, "python"), EditRules()),
        (Program("x = 1\nx = 1\n", "python"), EditRules()),
        (PROGRAM, EditRules(diff_pattern=r"<(.*)\|(.*)>")),
    ],
    ids=["a long program", "no line that occurs once", "blocks of another form"],
)
def test_edits_without_a_grammar_are_free(program: Program, rules: EditRules) -> None:
    assert edits_form(program, rules) is None
