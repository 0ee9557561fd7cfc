"""Inputs of a specification, from an option or a file: name to value, as a Python literal."""

import ast
import json
from collections.abc import Mapping
from pathlib import Path

from app.adapters.problems import options as option
from app.adapters.problems.files import content, decoded
from app.domain.problem import ProblemError

FILE = "evoq_inputs.txt"
"""The stored name of the inputs: a file with one Python literal, a dict."""
_SHORT = 32
_TOO_LARGE = (
    "Inputs are stored with the problem: give fewer of them, and let the function that scores read "
    "large data, which --set problem.mounts=PATH names, from `data/NAME` beside the evaluator."
)


def literal(given: object) -> bytes:
    """Returns the text of a dict of the inputs that `problem.inputs` names.

    Args:
      given: One value; or a list; or a text: the path of a file of JSON or of a Python literal, or
        a literal itself, in which a comma outside brackets separates inputs.

    Raises:
      ProblemError: The text is neither a literal nor the path of a file, or there is no input.
      OSError: The file cannot be read.
    """
    values = _values(given)
    named = values if isinstance(values, Mapping) else _named(values)
    if not named:
        raise _wrong("there is no input", given)
    return repr({str(name): value for name, value in named.items()}).encode()


def names(stored: bytes) -> tuple[str, ...]:
    """Returns the names of stored inputs, in order."""
    return tuple(ast.literal_eval(stored.decode()))


def _named(values: list[object]) -> dict[str, object]:
    """Returns each input by its text, or by its number where a text is long or occurs twice."""
    texts = [str(value) for value in values]
    short = all(len(text) <= _SHORT and text.isprintable() for text in texts)
    if short and len(set(texts)) == len(texts) and all(texts):
        return dict(zip(texts, values, strict=True))
    return {f"input {number}": value for number, value in enumerate(values, 1)}


def _values(given: object) -> list[object] | dict[object, object]:
    if isinstance(given, str):
        return _of_text(given)
    return given if isinstance(given, list | dict) else [given]


def _of_text(text: str) -> list[object] | dict[object, object]:
    path = Path(text).expanduser()
    if not path.is_file():
        return _of_literal(text, text)
    contents = decoded(content(path, _TOO_LARGE), str(path))
    if path.suffix != ".json":
        return _of_literal(contents, str(path))
    try:
        return _values(json.loads(contents))
    except ValueError as error:
        raise _wrong(f"not JSON: {error}", text) from error


def _of_literal(text: str, given: str) -> list[object] | dict[object, object]:
    try:
        node = ast.parse(text.strip(), mode="eval").body
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise _wrong("neither the path of a file nor a Python literal", given) from error
    if isinstance(node, ast.Tuple) and node.elts and node.elts[0].col_offset == node.col_offset:
        return list(value)
    return value if isinstance(value, list | dict) else [value]


def _wrong(what: str, given: object) -> ProblemError:
    return ProblemError(
        what,
        where=option.INPUTS,
        value=str(given)[:80],
        remedy="Write inputs as 3,4,5 or [[11, 4], [12, 5]], or give a file of JSON with a list or "
        "an object; quote texts.",
    )
