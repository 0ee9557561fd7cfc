"""Where replies come from: a file, or edits of the program in the prompt."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeAlias

from mock_llm.mutation import mutating_reply
from mock_llm.prefixes import CHARS_A_TOKEN
from mock_llm.reading import Asked


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice of an answer.

    Attributes:
      finish: `stop`, or `length` where it was cut at the request's limit.
    """

    text: str
    finish: str = "stop"

    @property
    def tokens(self) -> int:
        return count_tokens(self.text)


Replies: TypeAlias = Callable[[Asked, Random], str]
"""Returns the text of one choice."""


def count_tokens(text: str) -> int:
    """Returns about how many tokens a text has, one at least."""
    return max(1, -(-len(text) // CHARS_A_TOKEN))


def cut(text: str, max_tokens: int | None) -> Reply:
    """Returns a text as a reply, no longer than it may be."""
    if max_tokens is None or count_tokens(text) <= max_tokens:
        return Reply(text)
    return Reply(text[: max_tokens * CHARS_A_TOKEN], "length")


def mutating(asked: Asked, rng: Random) -> str:
    """Edits the program in the prompt."""
    return mutating_reply(asked.prompt, asked.last, rng)


def scripted(texts: list[str]) -> Replies:
    """Returns replies that come in order, and from the beginning again."""
    endless = itertools.cycle(texts)

    def reply(asked: Asked, rng: Random) -> str:  # noqa: ARG001  whatever is asked
        return next(endless)

    return reply


def read_script(path: Path) -> list[str]:
    r"""Returns the replies of a file, in order.

    A `.jsonl` file holds a reply a line, as a JSON string or as an object with `content`; any other
    file is one reply.

    Raises:
      OSError: It cannot be read.
      ValueError: It holds none, or a line that is no reply.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from error
    if path.suffix != ".jsonl":
        if not text.strip():
            raise ValueError(f"{path} is empty: write a reply into it")
        return [text]
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise ValueError(f"{path} is empty: write a reply a line, as a JSON string")
    return [_line(path, number, line) for number, line in lines]


def _line(path: Path, number: int, line: str) -> str:
    try:
        match json.loads(line):
            case str(reply) | {"content": str(reply)}:
                return reply
    except ValueError:
        pass
    raise ValueError(
        f"{path}:{number}: {line[:80]!r} is neither a JSON string nor an object with `content`"
    )
