"""Reply forms: the text with which a reply begins and ends."""

import pytest

from app.domain.operator import Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.prompting.reply_forms import definition_form, program_form, version_form
from app.domain.replies.children import read_rewritten
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
    assert isinstance(child, Offspring)
    assert "    return high\n" in child.program.source
