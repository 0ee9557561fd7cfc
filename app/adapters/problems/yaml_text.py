"""The text of a YAML file as a tree: where each key stands, and what is wrong with it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from app.adapters.problems.errors import ProblemError


def composed(text: str, where: str) -> yaml.Node | None:
    """Returns the tree of a text; None of an empty one.

    Raises:
      ProblemError: The text is not YAML.
    """
    node: yaml.Node | None = guarded(where, lambda: yaml.compose(text, Loader=yaml.SafeLoader))
    return node


def guarded(where: str, parse: Callable[[], Any]) -> Any:
    """Returns what `parse` returns.

    Raises:
      ProblemError: It found no YAML.
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
    """One `key: value` of the text; `name` is the dotted path, `line` counts from 1."""

    name: str
    key: str
    value: yaml.Node
    line: int


def pairs(root: yaml.Node | None) -> Iterator[Pair]:
    """Yields the pairs of every mapping, each mapping once, however often it is an alias."""
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
            waiting.extend((f"{path}{index}.", part) for index, part in enumerate(node.value))


def said_twice(root: yaml.Node | None, where: str) -> list[str]:
    """Returns a sentence for each key that a later one of its mapping overrules."""
    last: dict[str, int] = {}
    said = []
    for pair in pairs(root):
        if pair.name in last:
            said.append(
                f"{where}:{pair.line}: `{pair.name}` is given again; what line "
                f"{last[pair.name]} says is ignored."
            )
        last[pair.name] = pair.line
    return said
