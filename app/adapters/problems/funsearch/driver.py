"""Calls the function that scores of a specification on its inputs, inside the sandbox.

This file is sent there as the evaluator's module: it uses the standard library alone.  The
specification's own text is executed here, on the trusted side; of a program only the function that
evolves is called.
"""

import ast
import importlib.util
import inspect
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = "evoq_specification.json"
NO_INPUT = "score"
"""The name of the score of a specification that takes no input."""


def _module(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_SETTINGS: dict[str, str] = {}
_INPUTS: dict[str, object] = {}


def load() -> None:
    """Reads the settings and the inputs, and executes the specification.

    The text that is sent to a sandbox calls it at its end, so that trials need not.
    """
    with open(os.path.join(HERE, SETTINGS), encoding="utf-8") as file:
        _SETTINGS.update(json.load(file))
    _module("specification", os.path.join(HERE, _SETTINGS["file"]))
    if _SETTINGS["inputs"]:
        with open(os.path.join(HERE, _SETTINGS["inputs"]), encoding="utf-8") as file:
            _INPUTS.update(ast.literal_eval(file.read()))


def _specification() -> dict[str, Any]:
    return vars(sys.modules["specification"])


def evaluate(path: str, cases: Sequence[str] = ()) -> dict[str, object]:
    """Returns the score on each of the inputs; one that fails is missing, unless all of them do.

    With the scoring `last`, the score of the last input that did not fail is `combined_score` too.
    """
    module = _module("program", path)
    return _with_function(getattr(module, _SETTINGS["evolve"]), lambda: _scores(cases))


def count(path: str, cases: Sequence[str] = ()) -> dict[str, object]:
    """Returns how many calls of the function that evolves the inputs take, and the seconds."""
    called = getattr(_module("program", path), _SETTINGS["evolve"])
    calls = 0

    def counted(*arguments: object, **keywords: object) -> object:
        nonlocal calls
        calls += 1
        return called(*arguments, **keywords)

    started = time.perf_counter()
    _with_function(counted, lambda: _scores(cases))
    return {"calls": calls, "seconds": time.perf_counter() - started}


def _with_function(
    function: Callable[..., object], then: Callable[[], dict[str, object]]
) -> dict[str, object]:
    """Calls `then` with a function in the place of the one that evolves."""
    names, evolve = _specification(), _SETTINGS["evolve"]
    original = names[evolve]
    names[evolve] = function
    try:
        return then()
    finally:
        names[evolve] = original


def _scores(cases: Sequence[str]) -> dict[str, object]:
    if not _INPUTS:
        # Without inputs, the parameters are unused and called `_`.
        return {NO_INPUT: _score(_called(*[None] * _required()))}
    scores: dict[str, object] = {}
    failures: list[Exception] = []
    for case in cases:
        try:
            scores[case] = last = _score(_called(*_arguments(_INPUTS[case])))
        except Exception as error:
            failures.append(error)
            if len(failures) == len(cases) or _SETTINGS["scoring"] == "mean":
                raise
            name = f"{type(error).__name__}: {error}"
            scores["failed inputs"] = f"{scores.get('failed inputs', '')}{case}: {name}\n"
    return {**scores, "combined_score": last} if _SETTINGS["scoring"] == "last" else scores


def _called(*arguments: object) -> object:
    return _specification()[_SETTINGS["run"]](*arguments)


def _parameters() -> list[inspect.Parameter]:
    signature = inspect.signature(_specification()[_SETTINGS["run"]])
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one for one in signature.parameters.values() if one.kind in kinds]


def _required() -> int:
    return sum(parameter.default is inspect.Parameter.empty for parameter in _parameters())


def _arguments(given: Any) -> tuple[object, ...]:
    """Returns an input as arguments: a sequence is several where one is not enough."""
    several = isinstance(given, (tuple, list)) and _required() > 1
    if several and _required() <= len(given) <= len(_parameters()):
        return tuple(given)
    return (given,)


def _score(returned: object) -> float:
    """Returns the number that a specification returned.

    Of a pair (score, anything) that is the first, of a dict `combined_score`, else `score`, else
    the mean of its values, among which texts do not count.

    Raises:
      ValueError: There is no number.
    """
    if isinstance(returned, tuple) and len(returned) == 2:
        return _score(returned[0])
    if isinstance(returned, dict):
        for name in ("combined_score", "score"):
            if name in returned:
                return _score(returned[name])
        numbers = [_score(value) for value in returned.values() if not isinstance(value, str)]
        if numbers:
            mean = sum(numbers) / len(numbers)
            # The sum can exceed the largest float where the mean does not.
            if math.isinf(mean):
                mean = sum(number / len(numbers) for number in numbers)
            return _score(mean)
    try:
        if not isinstance(returned, (str, bytes, dict)) and math.isfinite(_float(returned)):
            return _float(returned)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(
        f"`{_SETTINGS['run']}` returned {str(returned)[:80]!r}, which is not an int/float score"
    )


def _float(value: Any) -> float:
    """Returns what `float` makes of a value, also of an array of one element."""
    of_one = set(getattr(value, "shape", ())) == {1}
    return float(value.item() if of_one else value)
