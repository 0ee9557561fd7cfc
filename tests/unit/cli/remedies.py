"""The remedies that a module's source text names, for tests that carry each of them out."""

import ast
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ADVICE = re.compile(
    r"`evoq |--set|EVOQ_[A-Z]|\b(?:set|start|give|name|use|leave|choose|run|correct|unset|install|"
    r"raise|write|put|check|wait|end|add|remove|see|change|replay|unmount|return) ",
    re.IGNORECASE,
)
"""Words by which the text of an error says what to do."""
_SHORT = 4
"""Texts up to so many characters are punctuation."""


@dataclass(frozen=True, slots=True)
class Row:
    """A refusal, with the words of its advice and what carries them out.

    Attributes:
      given: A call that is refused.
      advice: Words of the message.
      carried_out: A call in place of `given` for each alternative.
    """

    given: Callable[[], Any]
    advice: str
    carried_out: Sequence[Callable[[], Any]]

    def check(self) -> None:
        """Shows the refusal with its advice, and that each alternative ends it."""
        with pytest.raises((Exception, SystemExit)) as caught:
            self.given()
        assert self.advice in str(caught.value), str(caught.value)
        for carry_out in self.carried_out:
            carry_out()


@contextmanager
def replaced(target: Any, **values: Any) -> Iterator[None]:
    """Replaces attributes of a module or a class during the block; see `replace_everywhere`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            replace_everywhere(patch, target, name, value)
        yield


def replace_everywhere(patch: pytest.MonkeyPatch, target: Any, name: str, value: object) -> None:
    """Replaces an attribute of a module, and the name of it in each module that imports it."""
    before = getattr(target, name)
    patch.setattr(target, name, value)
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("app.") and vars(module).get(name) is before:
            patch.setattr(module, name, value)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Lets this process have no more rights than a user who owns nothing, where it is root's."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def remedies(module: Any) -> list[str]:
    """Returns the texts of all remedies of a module, with {} for what is filled in.

    A remedy is an argument or a variable of that name, or the third argument of `error`.
    """
    tree = ast.parse(Path(module.__file__).read_text())
    texts = [text for node in ast.walk(tree) for value in _values(node) for text in _texts(value)]
    return [text for text in texts if len(text) > _SHORT]


def advised(path: Path) -> list[str]:
    """Returns the texts of exceptions that a module raises and that say what to do themselves."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Raise(exc=ast.Call(args=arguments, keywords=keywords)) if not any(
                keyword.arg == "remedy" for keyword in keywords
            ):
                texts = (text for argument in arguments for text in _texts(argument))
                found += [text for text in texts if _ADVICE.search(text)]
            case _:
                pass
    return found


def is_carried_out(text: str, tried: Sequence[str]) -> bool:
    """Returns whether the words of a remedy are among those that a test carries out."""
    pieces = [piece for piece in text.split("{}") if len(piece) > _SHORT]
    return any(
        piece.strip(" .,") in words or words.strip(" .,") in text
        for words in tried
        for piece in pieces
    )


def _values(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.keyword(arg="remedy", value=value):
            yield value
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if re.search(
            "remedy$", name, re.I
        ):
            yield value
        case ast.Call(func=ast.Attribute(attr="error"), args=[_, _, value]):
            yield value
        case _:
            pass


def _texts(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_texts(body), *_texts(orelse))
        case ast.BinOp(left=left, right=right):
            yield from (*_texts(left), *_texts(right))
        case _:
            pass
