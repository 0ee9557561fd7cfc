"""Functions: the evolving function of a program, its parts, and its name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.program import Program
from app.domain.source.functions import evolving, find_function, renamed
from tests.unit.domain.evolving_programs import BLOCKS, SPEC


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        (SPEC, "", "priority"),
        (BLOCKS, "", "priority"),
        (BLOCKS, "pack", "pack"),
        (BLOCKS, "nobody", None),
        ("def f():\n    return 1\n", "", "f"),
        ("def f():\n    return 1\n\ndef g():\n    return 2\n", "", None),
        ("x = 1\n", "", None),
        ("def f(:\n", "", None),
        (BLOCKS.replace("# EVOLVE-BLOCK-END", "def h():\n    pass\n# EVOLVE-BLOCK-END"), "", None),
    ],
)
def test_an_ambiguous_evolving_function_is_not_guessed(
    source: str, name: str, expected: str | None
) -> None:
    assert evolving(Program(source), name) == expected


def test_a_function_with_a_header_of_several_lines_is_split() -> None:
    source = "def f(\n    a,\n    b,  # why\n) -> int:\n    # note\n    return a\n\nx = 1\n"

    function = find_function(source, "f")

    assert function is not None
    assert function.header == source[: source.index("    # note")]
    assert function.body == "    # note\n    return a\n"
    assert function.source(function.body) == source


def test_a_function_with_its_body_on_the_line_of_the_header_is_split() -> None:
    function = find_function("def f(a): return a\nx = 1\n", "f")

    assert function is not None
    assert function.source(function.body) == "def f(a):\n    return a\nx = 1\n"


STATEMENTS = st.sampled_from(
    [
        "x = f(1)",
        "return f(a)",
        "s = 'f(2)'",
        "# f(3)",
        "a.f(4)",
        "if a:\n        f(5)",
        "y = [\n1]",
    ]
)


FUNCTIONS = st.tuples(st.lists(STATEMENTS, min_size=1, max_size=5), st.booleans())


def source_of(statements: list[str], *, described: bool) -> str:
    docstring = '    """Says f(0)."""\n' if described else ""
    body = "".join(f"    {statement}\n" for statement in [*statements, "pass"])
    return f"import x\n\ndef f(a):\n{docstring}{body}\ny = 1\n"


@given(FUNCTIONS)
def test_splitting_a_function_loses_nothing(drawn: tuple[list[str], bool]) -> None:
    source = source_of(drawn[0], described=drawn[1])

    function = find_function(source, "f")

    assert function is not None
    assert function.source(function.body) == source


@given(FUNCTIONS)
def test_renaming_a_function_can_be_undone(drawn: tuple[list[str], bool]) -> None:
    function = find_function(source_of(drawn[0], described=drawn[1]), "f")
    assert function is not None
    text = function.header + function.docstring + function.body

    version = renamed(text, "f", "f_v12")

    assert renamed(version, "f_v12", "f") == text


@given(FUNCTIONS)
def test_renaming_a_function_leaves_methods_strings_and_comments(
    drawn: tuple[list[str], bool],
) -> None:
    function = find_function(source_of(drawn[0], described=drawn[1]), "f")
    assert function is not None
    text = function.header + function.docstring + function.body

    version = renamed(text, "f", "f_v12")

    assert "a.f_v12" not in version
    for untouched in ("'f(2)'", "# f(3)", "Says f(0)."):
        assert version.count(untouched) == text.count(untouched)
