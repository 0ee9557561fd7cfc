"""Kinds of values, and the literals that sizes and positions are made from."""

import ast

import pytest

from app.domain.operators import tune
from app.domain.program import Program
from app.domain.source.kinds.values import Kind
from app.domain.source.sites import SourceTree, kinds, sites


def kind_of(source: str, text: str) -> Kind:
    """Returns the kind of the last expression with that text."""
    found = kinds(SourceTree.of(source))
    return [
        found.value(node).kind
        for node in found.values
        if isinstance(node, ast.expr) and ast.unparse(node) == text
    ][-1]


@pytest.mark.parametrize(
    ("source", "text", "kind"),
    [
        ("def f(fen):\n    return fen.split()[0]\n", "fen.split()[0]", Kind.TEXT),
        ("def f(legal):\n    return legal[0]\n", "legal[0]", Kind.UNKNOWN),
        ("def f(x):\n    y = x - 1\n    return x\n", "x", Kind.REAL),
        ("def f(x: int):\n    return x * 2\n", "x * 2", Kind.INTEGER),
        ("def f(n):\n    for i in range(n):\n        a = i / 2\n    return a\n", "a", Kind.REAL),
        ("import numpy as np\ndef f(a):\n    b = a - 1\n    return b\n", "b", Kind.ARRAY),
        ("def f():\n    a = [1.5, 2.5]\n    return a[0]\n", "a[0]", Kind.REAL),
        ("def g(x):\n    return x * 1.5\ndef f():\n    return g(2.0)\n", "g(2.0)", Kind.REAL),
        ("def f():\n    b = {}\n    b['a'] = 'x'\n    return b['a']\n", "b['a']", Kind.TEXT),
        ("def f():\n    a = (1.0, 2.0)\n    return a\n", "a", Kind.TUPLE),
    ],
)
def test_a_value_has_the_kind_that_the_text_shows(source: str, text: str, kind: Kind) -> None:
    assert kind_of(source, text) is kind


@pytest.mark.parametrize(
    ("source", "tunable"),
    [
        ("def f():\n    rows = [6, 5]\n    for n in rows:\n        g(range(n))\n", []),
        ("def f(b):\n    i = 4\n    return 2.5 * b[i]\n", [2.5]),
        ("def f(b):\n    i = 0\n    i += 4\n    return b[i]\n", []),
        ("import numpy as np\ndef f():\n    n = 5\n    return np.zeros((n, 2)) + 7\n", [7]),
        ("def f(b):\n    n = 9\n    return b[2:n]\n", []),
        ("def f(a):\n    w = [0.5, 1.5]\n    return w[min(len(a), 7)]\n", [0.5, 1.5]),
        ("def f(b, x):\n    while 0 <= x < 7:\n        x += b[x]\n    return x\n", []),
        ("def f():\n    n = 6\n    return [0.5] * n\n", [0.5]),
        ("def f(x):\n    n = 6\n    return x * n\n", [6]),
        ("def f(b):\n    return b[g(8)]\ndef g(x):\n    return min(x, 3)\n", []),
        ("def f(b):\n    for i, x in enumerate([5, 6]):\n        g(b[x])\n    return b\n", []),
    ],
)
def test_literals_that_become_sizes_or_positions_are_not_tuned(
    source: str, tunable: list[float]
) -> None:
    assert tune.numbers(Program(source)) == tunable


def test_the_rows_of_a_packing_are_kept_and_its_heights_are_tuned() -> None:
    source = (
        "def f():\n    rows = [6, 5]\n    heights = [0.25, 0.75]\n    found = []\n"
        "    for count, height in zip(rows, heights, strict=True):\n"
        "        for place in range(count):\n            found.append((place, height))\n"
        "    return found\n"
    )
    assert tune.numbers(Program(source)) == [0.25, 0.75]


def test_arrays_are_of_one_shape_only_where_the_program_combines_them() -> None:
    source = (
        "import numpy as np\ndef f(a, b, c):\n    d = a - b\n    e = c.sum(axis=1) - 1\n"
        "    return d * 2, e\n"
    )
    found = kinds(SourceTree.of(source))
    values = {
        ast.unparse(node): found.value(node) for node in found.values if isinstance(node, ast.Name)
    }
    assert found.same(values["a"], values["d"])
    assert not found.same(values["d"], values["e"])


def test_a_fraction_is_of_another_type_where_a_whole_number_is_returned() -> None:
    source = SourceTree.of("def f(x: int):\n    y = 0.5 * (x + 2)\n    return x + 3\n")
    whole = {ast.unparse(site.node) for site in sites(source) if site.whole}
    assert whole == {"x + 3", "x", "3"}
