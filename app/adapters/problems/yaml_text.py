"""YAML with the lines of its keys, and its syntax errors as errors of a problem."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import yaml

from app.config.yaml_values import Loader
from app.domain.problem import ProblemError

T = TypeVar("T")


def composed(text: str, where: str) -> yaml.Node | None:
    """Returns the tree of nodes of a text; None for an empty text.

    Raises:
      ProblemError: The text is not YAML.
    """
    node: yaml.Node | None = guarded(where, lambda: yaml.compose(text, Loader=Loader))
    return node


def guarded(where: str, parse: Callable[[], T]) -> T:
    """Returns what `parse` returns.

    Raises:
      ProblemError: `parse` found a syntax error.
    """
    try:
        return parse()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ProblemError(
            "not valid YAML",
            where=f"{where}:{mark.line + 1}" if mark else where,
            value=str(error.problem or error.context),
            remedy="Correct the syntax on or just above that line.",
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ProblemError(
            "not valid YAML",
            where=where,
            value=str(error).splitlines()[0][:200],
            remedy="Correct the syntax of the file.",
        ) from error


@dataclass(frozen=True, slots=True)
class Pair:
    """One `key: value` of the text, or one entry of a list, whose key is its number from 0.

    Attributes:
      name: The dotted path.
      line: From 1.
    """

    name: str
    key: str
    value: yaml.Node
    line: int


def pairs(root: yaml.Node | None) -> Iterator[Pair]:
    """Yields what every mapping and list holds, each of them once, however often it is an alias."""
    waiting: list[tuple[str, yaml.Node | None]] = [("", root)]
    seen: set[int] = set()
    while waiting:
        path, node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    name = f"{path}{key.value}"
                    yield Pair(name, key.value, value, key.start_mark.line + 1)
                    waiting.append((f"{name}.", value))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                yield Pair(f"{path}{index}", str(index), value, value.start_mark.line + 1)
                waiting.append((f"{path}{index}.", value))
