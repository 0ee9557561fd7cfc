"""Functions become a problem by their sources, which stand on their own."""

import functools
import math
from collections import Counter
from collections.abc import Sequence
from math import sqrt as root
from typing import Any

import pytest

from app.adapters.problems.callables import source_of
from app.domain.problem import ProblemError
from app.domain.source import regions

SCALE = {"large": (2.0, None)}
HANDLE = open  # a builtin
LIVE = object()
CALLS: list[str] = []


class Point:
    def __init__(self, x: float) -> None:
        self.x = x


def scaled(x: float) -> float:
    return SCALE["large"][0] * x


@functools.lru_cache
def guess(n: int) -> float:
    CALLS.append("guess")
    return scaled(Point(n).x) + root(4) + math.pi


def score(guess: Any, numbers: Sequence[int] = (1, 2)) -> float:
    return sum(Counter(numbers)[n] * guess(n) for n in numbers)


def recursive(n: int) -> int:
    return 1 if n == 0 else n * mutual(n - 1)


def mutual(n: int) -> int:
    return recursive(n)


def unshippable(n: int) -> Any:
    return LIVE, n


def around(n: int) -> Any:
    def inner() -> int:
        return n

    return inner


def texts(function: Any, evaluator: Any = score) -> dict[str, str]:
    return {name: text.decode() for name, text in source_of(function, evaluator).files.items()}


def test_what_a_function_uses_of_its_file_goes_with_it():
    files = texts(guess.__wrapped__)

    names: dict[str, Any] = {}
    exec(files["initial_program.py"], names)
    assert names["guess"](3) == 6.0 + 2.0 + math.pi
    assert CALLS == []

    evaluator: dict[str, Any] = {}
    exec(files["evaluator.py"], evaluator)
    assert evaluator["score"](lambda n: n) == 3


def test_only_the_lines_of_the_function_may_change_and_its_decorators_go():
    [body] = regions.bodies(texts(guess.__wrapped__)["initial_program.py"])

    assert body.startswith("def guess(n: int)")
    assert "class Point" not in body


def test_functions_that_call_each_other_are_shipped_once():
    names: dict[str, Any] = {}
    exec(texts(recursive)["initial_program.py"], names)

    assert names["recursive"](5) == 120


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda n: n, "is no function with a name"),
        (unshippable, "unshippable: uses 'LIVE', whose value cannot be shipped"),
        (around(3), "inner: uses variables of a function around it"),
        (Point(1).__init__, "is no function that was made by `def`"),
        (math.sqrt, "is no function that was made by `def`"),
        (eval("lambda n: n"), "has no source text"),
    ],
)
def test_a_function_that_cannot_be_shipped_is_refused_by_name(function, message):
    with pytest.raises(ProblemError, match=message):
        texts(function)
