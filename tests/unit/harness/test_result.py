"""Numbers of an evaluator as the harness writes them."""

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from workers.harness.result import document


class Tensor:
    """Behaves as a tensor of PyTorch or JAX."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def __float__(self) -> float:
        if len(self.values) != 1:
            raise RuntimeError("a Tensor with several elements cannot be converted to Scalar")
        return self.values[0]

    def __index__(self) -> int:
        if len(self.values) != 1 or not self.values[0].is_integer():
            raise TypeError("only integer tensors of a single element can be converted")
        return int(self.values[0])

    def __repr__(self) -> str:
        return f"tensor{self.values}"


class Index:
    """Behaves as an integer of another library."""

    def __index__(self) -> int:
        return 7


def written(value: Any) -> Any:
    """Returns a metric as the worker reads it."""
    return json.loads(document({"score": value}, 10_000))["result"]["metrics"]["score"]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (Tensor(0.5), 0.5),
        (Index(), 7),
        (Decimal("0.1"), 0.1),
        (Fraction(1, 4), 0.25),
        (np.float16(0.5), 0.5),
        (np.float32(0.25), 0.25),
        (np.longdouble("0.5"), 0.5),
        (np.int8(-3), -3),
        (np.uint64(2**63), 2**63),
        (np.bool_(True), True),
        (np.array(2.5), 2.5),
        (np.array([2.5]), 2.5),
        (np.array([[3]]), 3),
        (np.array([np.longdouble("0.5")]), 0.5),
        (np.array([Fraction(1, 2)], dtype=object), 0.5),
        (np.ma.masked_array([1.5]), 1.5),
    ],
)
def test_whatever_float_takes_is_a_number(value: Any, number: float) -> None:
    assert written(value) == number
    assert written({"inside": [value]}) == {"inside": [number]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("NaN"), "nan"),
        (Decimal("1e999"), "inf"),
        (Fraction(-(10**400), 1), "-inf"),
        (Tensor(float("-inf")), "-inf"),
    ],
)
def test_a_number_that_no_float_holds_is_recognisable(value: Any, text: str) -> None:
    assert written(value) == {"__nonfinite__": text}


@pytest.mark.parametrize(
    ("value", "kind"), [(1 + 2j, "complex"), (Tensor(1.0, 2.0), "Tensor"), (object, "type")]
)
def test_what_is_no_number_is_an_object_with_its_type(value: Any, kind: str) -> None:
    assert written(value) == {"__object__": repr(value), "type": kind}


@pytest.mark.parametrize("value", ["0.5", None, [0.5], {"a": 0.5}])
def test_texts_and_containers_stay_what_they_are(value: Any) -> None:
    assert written(value) == value


def test_an_array_of_several_is_a_list() -> None:
    assert written(np.array([1.0, 2.0])) == [1.0, 2.0]
