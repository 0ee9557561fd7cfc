"""Replies of one function or class, and the children that they make."""

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.definition import read_definition
from app.domain.source.definitions import Definition, changeable_definitions, outline
from app.domain.source.edits import summary

SOURCE = '''\
import math

LIMIT = 3


# EVOLVE-BLOCK-START
def step(x, low):
    """Moves x."""
    return x - low


class Solver:
    def __init__(self, seed):
        self.seed = seed

    def solve(self, x):
        text = """
    kept as it is
"""
        return step(x, self.seed) + len(text)


# EVOLVE-BLOCK-END
def run(x):
    return Solver(1).solve(x)
'''
PARENT = Program(SOURCE, "python")


def focus(name: str, parent: Program = PARENT) -> Definition:
    return next(each for each in changeable_definitions(parent) if each.name == name)


def read(text: str, name: str = "step", *, finish: str = "stop", parent: Program = PARENT) -> Child:
    reply = Completion(text, finish=finish)
    return read_definition(reply, parent, focus(name, parent), EditRules(), summary)


def source(child: Child) -> str:
    assert isinstance(child, Offspring), child
    return child.program.source


def failure(child: Child) -> Failure:
    assert isinstance(child, Failure), child
    return child


def test_functions_methods_and_short_classes_inside_the_blocks_may_change() -> None:
    names = [each.name for each in changeable_definitions(PARENT)]

    assert names == ["step", "Solver", "Solver.__init__", "Solver.solve"]


def test_without_blocks_every_definition_may_change() -> None:
    program = Program("@cache\ndef a():\n    pass\n\n\nasync def b():\n    pass\n", "python")

    assert [(each.name, each.first) for each in changeable_definitions(program)] == [
        ("a", 0),
        ("b", 5),
    ]


def test_a_program_in_another_language_has_no_definition_to_change() -> None:
    assert changeable_definitions(Program("fn main() {}", "rust")) == []


def test_the_function_of_a_reply_takes_the_place_of_the_parents() -> None:
    child = source(read("Better:\n```python\ndef step(x, low):\n    return x - 2 * low\n```\n"))

    assert child == SOURCE.replace(
        'def step(x, low):\n    """Moves x."""\n    return x - low\n',
        "def step(x, low):\n    return x - 2 * low\n",
    )


def test_a_reply_without_a_fence_is_the_function() -> None:
    assert "x * low" in source(read("def step(x, low):\n    return x * low\n"))


def test_a_method_alone_is_indented_as_its_class_needs() -> None:
    child = source(read("```python\ndef solve(self, x):\n    return -x\n```", "Solver.solve"))

    assert "    def solve(self, x):\n        return -x\n\n\n# EVOLVE-BLOCK-END\n" in child


def test_a_method_may_stand_in_its_class() -> None:
    reply = "```python\nclass Solver:\n    def solve(self, x):\n        return -x\n```"

    child = source(read(reply, "Solver.solve"))

    assert "    def __init__(self, seed):\n" in child
    assert "        return -x\n" in child


def test_lines_of_a_text_keep_their_white_space() -> None:
    reply = '```python\ndef solve(self, x):\n    text = """\n  as it is\n"""\n    return x\n```'

    child = source(read(reply, "Solver.solve"))

    assert '        text = """\n  as it is\n"""\n        return x\n' in child


def test_imports_constants_and_helpers_that_are_used_go_before_the_function() -> None:
    reply = (
        "```python\nimport random\nWIDTH = 4\n\ndef helper(x):\n    return x * WIDTH\n\n"
        "def step(x, low):\n    return helper(x) + random.random()\n\nprint(step(1, 2))\n```"
    )

    child = source(read(reply))

    assert child.index("import random") < child.index("WIDTH = 4") < child.index("def helper(x)")
    assert child.index("def helper(x)") < child.index("def step(x, low)")
    assert child.index("EVOLVE-BLOCK-START") < child.index("import random")
    assert "print" not in child


def test_a_constant_that_only_an_example_sets_is_left_out() -> None:
    reply = "```python\ndef step(x, low):\n    return x\n\nresult = step(1, 2)\n```"

    assert "result" not in source(read(reply))


def test_an_import_that_the_parent_has_is_not_repeated() -> None:
    reply = "```python\nimport math\ndef step(x, low):\n    return math.sin(x)\n```"

    assert source(read(reply)).count("import math") == 1


def test_another_definition_of_the_parent_in_the_reply_is_replaced_too() -> None:
    reply = (
        "```python\ndef step(x, low):\n    return x\n\nclass Solver:\n"
        "    def __init__(self, seed):\n        self.seed = 2\n\n"
        "    def solve(self, x):\n        return step(x, 0)\n```"
    )

    child = source(read(reply))

    assert "self.seed = 2" in child
    assert "kept as it is" not in child


def test_a_definition_outside_the_blocks_stays() -> None:
    reply = "```python\ndef step(x, low):\n    return x\n\ndef run(x):\n    return 1e9\n```"

    assert "1e9" not in source(read(reply))


def test_a_whole_program_is_read_as_one() -> None:
    child = source(read(f"```python\n{SOURCE.replace('x - low', 'x + low')}```"))

    assert child == SOURCE.replace("x - low", "x + low")


def test_edit_blocks_are_read_as_edits() -> None:
    reply = "<<<<<<< SEARCH\n    return x - low\n=======\n    return low\n>>>>>>> REPLACE\n"

    assert source(read(reply)) == SOURCE.replace("return x - low", "return low")


def test_an_equal_function_is_unchanged() -> None:
    reply = '```python\ndef step(x, low):\n    """Other words."""\n    return x - low\n```'

    assert failure(read(reply)).kind is FailureKind.UNCHANGED


def test_other_parameters_are_named() -> None:
    refused = failure(read("```python\ndef step(y):\n    return y\n```"))

    assert refused.kind is FailureKind.BAD_EDIT
    assert "step takes (y); it must take (x, low)." in refused.detail


def test_a_further_parameter_with_a_default_is_accepted() -> None:
    assert "k=2" in source(read("```python\ndef step(x, low, k=2):\n    return x * k\n```"))


def test_a_reply_without_the_function_says_so() -> None:
    refused = failure(read("```python\ndef other(x):\n    return x\n```"))

    assert refused.kind is FailureKind.NO_CODE
    assert "does not define step" in refused.detail


def test_prose_is_no_function() -> None:
    assert failure(read("I would use a larger step.")).kind is FailureKind.NO_CODE


def test_a_reply_that_was_cut_off_inside_the_function_is_not_read() -> None:
    reply = "```python\ndef step(x, low):\n    return x"

    assert "cut off" in failure(read(reply, finish="length")).detail


def test_a_syntax_error_names_its_line() -> None:
    refused = failure(read("```python\ndef step(x, low):\n    return (x\n```"))

    assert refused.kind is FailureKind.SYNTAX


def test_windows_line_ends_stay() -> None:
    parent = Program(SOURCE.replace("\n", "\r\n"), "python")

    child = source(read("```python\ndef step(x, low):\n    return x\n```", parent=parent))

    assert child.count("\n") == child.count("\r\n")


def test_an_outline_shows_the_kept_definition_in_full_and_others_by_their_header() -> None:
    shown = outline(SOURCE, [focus("Solver.solve")])

    assert 'def step(x, low):\n    """Moves x."""\n    ...\n' in shown
    assert "self.seed = seed" not in shown
    assert "kept as it is" in shown
    assert "def run(x):\n    ...\n" in shown
    assert "LIMIT = 3" in shown
