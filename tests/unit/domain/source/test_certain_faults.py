"""Faults that are certain before a program runs."""

import sysconfig
from pathlib import Path

import pytest

from app.domain.source.certain_faults import MOST_FAULTS, new_faults

PARENT = "def search(n):\n    return n, n, n\n"


def texts(child: str, parent: str = PARENT) -> list[str]:
    return [str(fault) for fault in new_faults(child, parent)]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (
            "    return climb(n), n, n",
            "the function `climb` is called, but never defined or imported",
        ),
        ("    return np.pi, n, n", "the name `np` is used, but never defined or imported"),
        ("    return [m for _ in range(n)], n, n", "the name `m` is used"),
        ("    return (lambda a: b)(n), n, n", "the name `b` is used"),
    ],
)
def test_a_name_that_is_read_and_nowhere_bound_is_a_fault_with_its_line(line, fault):
    [found] = texts(f"def search(n):\n{line}\n")

    assert found.startswith(f"line 2: {fault}")


def test_a_name_of_another_scope_does_not_bind_a_name_of_the_module():
    child = "def f():\n    step = 1\nclass C:\n    step = 2\n    def g(self): return step\n"

    assert texts(child) == ["line 5: the name `step` is used, but never defined or imported"]


def test_an_annotation_that_is_evaluated_is_read():
    child = "def search(n: List[int]):\n    return n, n, n\n"

    assert texts(child) == ["line 1: the name `List` is used, but never defined or imported"]
    assert texts("from __future__ import annotations\n" + child) == []
    assert texts("def search(n):\n    x: List[int] = n\n    return x, n, n\n") == []


@pytest.mark.parametrize(
    "body",
    [
        "import numpy as np\nx = np.pi",
        "import os.path\nx = os.sep",
        "from math import *\nx = cos(1)",
        "globals()['y'] = 1\nx = y",
        "exec('y = 1')\nx = y",
        "if (y := 1):\n    x = y",
        "x = [z for z in range(3) if (w := z)]\nv = w",
        "for i in range(3):\n    pass\nx = i",
        "with open(__file__) as f:\n    x = f",
        "try:\n    y\nexcept NameError:\n    y = 1",
        "try:\n    unicode\nexcept NameError:\n    pass",
        "match {'a': 1}:\n    case {'a': one, **rest}:\n        x = one, rest",
        "match [1]:\n    case [a, *b] as c:\n        x = a, b, c",
        "def f():\n    global g\n    g = 1\n\n\ndef h():\n    return g",
        "def f():\n    n = 1\n    def g():\n        nonlocal n\n        n += 1\n    return g",
        "class C:\n    a = 1\n    b = a, __qualname__\n    def m(self): return __class__, self.__d",
        "def top(a, b):\n    return a + b",
        "import sys\nx = 1\ndel x\nprint(__name__, __file__, sys)",
        "if __name__ == '__main__':\n    run(args)",
        "x = 'not {a} name'\ny = f'{x}'",
        "def f(*args, key=1, **more):\n    return args, key, more",
        "try:\n    pass\nexcept ValueError as error:\n    x = error",
        "async def f(s):\n    async for a in s:\n        yield a",
    ],
)
def test_what_is_bound_in_any_way_is_no_fault(body):
    assert texts(body + "\n") == []


def test_a_parent_that_is_given_names_from_outside_silences_the_rule_of_names():
    assert texts("x = np.e + math.pi\n", parent="x = np.pi\n") == []


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("step(1, 2, 3)", "is called with 3 arguments, but takes at most 2"),
        ("step()", "is called without its argument `a`"),
        ("step(1, c=2)", "is called with an argument `c`, which it does not have"),
        ("step(1, a=2)", "is called with two values for its argument `a`"),
    ],
)
def test_a_call_with_arguments_that_a_function_does_not_take_is_a_fault(call, fault):
    child = f"def step(a, b=1):\n    return a + b\n\n\ndef search(n):\n    return {call}, n, n\n"

    assert texts(child) == [f"line 6: `step` {fault}"]


@pytest.mark.parametrize(
    "program",
    [
        "def step(a):\n    return a\n\n\nx = step(*[1])\ny = step(**{'a': 1})\n",
        "def step(a, *more, k=1, **rest):\n    return a\n\n\nx = step(1, 2, 3, k=4, z=5)\n",
        "def step(a):\n    return a\n\n\nstep = lambda a, b: a\nx = step(1, 2)\n",
        "if 1:\n    def step(a): return a\nelse:\n    def step(a, b): return a\nx = step(1, 2)\n",
        "def with_default(f): return f\n@with_default\ndef step(a): return a\nx = step(1, 2)\n",
        "def step(a):\n    return a\n\n\ndef g(step):\n    return step(1, 2)\n",
        "class C:\n    def step(self): return 1\n\n    def go(self): return self.step(1)\n",
        "def step(a):\n    return a\n\n\ntry:\n    step()\nexcept TypeError:\n    pass\n",
    ],
)
def test_a_call_that_nobody_can_judge_is_no_fault(program):
    assert texts(program) == []


def test_a_tuple_of_another_length_than_all_callers_unpack_is_a_fault():
    pair = "def pair(n):\n    return n, n, n\n\n\n"
    child = pair + "def search(n):\n    a, b = pair(n)\n    return a, b, n\n"

    assert texts(child) == ["line 2: `pair` returns 3 values, but its callers unpack 2"]


def test_a_tuple_of_another_length_than_the_parents_is_a_fault_where_callers_are_outside():
    assert texts("def search(n):\n    return n, n\n") == [
        "line 2: `search` returns 2 values, but the program returned 3"
    ]


@pytest.mark.parametrize(
    "child",
    [
        "def search(n):\n    return best(n)\n\n\ndef best(n):\n    return n, n, n\n",
        "def search(n):\n    return [n, n]\n",
        "def search(n):\n    return (*n, 1)\n",
        "def search(n):\n    yield n, n\n",
        "def search(n):\n    def inner():\n        return n, n\n    return inner()[0], n, n\n",
        "def search(n):\n    return n, n\n\n\nx = search(1)\n",
    ],
)
def test_a_return_whose_length_nobody_knows_is_no_fault(child):
    assert texts(child) == []


def test_a_helper_whose_callers_changed_with_it_is_no_fault():
    parent = (
        "def pair():\n    return 1, 2\n\n\ndef search(n):\n    a, b = pair()\n    return a, b, n\n"
    )
    child = parent.replace("1, 2", "1, 2, 3").replace("a, b = ", "a, b, c = ")

    assert texts(child, parent) == []


def test_a_fault_that_the_parent_has_too_is_not_repeated():
    parent = "def step(a):\n    return a\n\n\ndef never():\n    return step()\n"

    assert texts(parent + "x = 1\n", parent) == []


def test_only_the_first_faults_are_told():
    assert len(texts("\n".join(f"x{n} = y{n}" for n in range(9)))) == MOST_FAULTS


@pytest.mark.parametrize("text", ["def (", "x = '\0'", "return 1"])
def test_of_a_text_that_is_no_program_nothing_is_said(text):
    assert texts(text) == []


@pytest.mark.parametrize(
    "module", ["poplib", "dataclasses", "argparse", "fractions", "heapq", "json/decoder"]
)
def test_modules_of_the_standard_library_have_no_faults(module):
    source = Path(sysconfig.get_path("stdlib"), f"{module}.py").read_text()

    assert texts(source) == []
