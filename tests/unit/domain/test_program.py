"""Fingerprints of programs."""

import pytest

from app.domain.program import Program, fingerprint


def test_layout_comments_and_docstrings_do_not_make_a_program_new() -> None:
    plain = Program("def f(x):\n    return x + 1\n")
    dressed = Program('def f(x):\n    """Adds."""\n    # one\n    return (x+1)\n')
    assert fingerprint(plain) == fingerprint(dressed)
    assert fingerprint(plain) != fingerprint(Program("def f(x):\n    return x + 2\n"))


def test_source_that_does_not_parse_still_has_a_fingerprint() -> None:
    assert fingerprint(Program("def f(:")) == fingerprint(Program("def  f(:\n"))
    assert fingerprint(Program("(" * 5000))


SUM = """\
def f(items):
    total = 0
    for item in items:
        total += item
    return total
"""


def test_the_names_of_local_variables_do_not_make_a_program_new() -> None:
    renamed = SUM.replace("total", "acc").replace("item in", "x in").replace("= item", "= x")
    assert fingerprint(Program(SUM)) == fingerprint(Program(renamed))
    method = "class A:\n" + "".join(f"    {line}\n" for line in SUM.splitlines())
    assert fingerprint(Program(method)) == fingerprint(Program(method.replace("total", "acc")))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SUM, SUM.replace("items", "values")),  # a parameter may be given by its name
        ("a = 1\nb = 2\ndef f():\n    return a\n", "a = 1\nb = 2\ndef f():\n    return b\n"),
        ("def f(k):\n    x = 1\n    y = 2\n    return x\n",) * 1
        + ("def f(k):\n    x = 1\n    y = 2\n    return y\n",),
        ("def f():\n    max = 1\n    return max\n", "def f():\n    min = 1\n    return min\n"),
        (
            "def f():\n    a = 1\n    return locals()\n",
            "def f():\n    b = 1\n    return locals()\n",
        ),
        ("def f():\n    global a\n    a = 1\n", "def f():\n    global b\n    b = 1\n"),
        (
            "def f():\n    def g():\n        t = 1\n    return t\n",
            "def f():\n    def g():\n        u = 1\n    return t\n",
        ),
        (
            "def f():\n    import os as a\n    return a\n",
            "def f():\n    import os as b\n    return c\n",
        ),
    ],
)
def test_names_that_may_mean_something_make_a_program_new(one: str, other: str) -> None:
    assert fingerprint(Program(one)) != fingerprint(Program(other))


def test_a_swap_of_two_local_variables_is_a_new_program() -> None:
    straight = "def f(k):\n    a = k\n    b = k + 1\n    return a - b\n"
    assert fingerprint(Program(straight)) != fingerprint(
        Program(straight.replace("a - b", "b - a"))
    )


def test_docstrings_are_left_out_wherever_statements_can_stand() -> None:
    outer = """if a:
    pass
elif b:
    try:
        pass
    except E:
        def handled():
            {}
            return 1
    else:
        match a:
            case 1:
                class Cased:
                    {}
                    x = 1
"""
    assert fingerprint(Program(outer.format("'one'", "'two'"))) == fingerprint(
        Program(outer.format("'other'", ""))
    )
    assert fingerprint(Program("x = 'one'\n")) != fingerprint(Program("x = 'two'\n"))
