"""The text of replies: scripted in a file, or edits of the program in the prompt.

A mutating reply edits the program as the operator `mutate` does, in the form that the prompt asks
for: it finds the program, edits its syntax tree, and answers as a model would.  Of a program that
failed it removes the line that the prompt names.  A strategist's prompt gets directions.
"""

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from random import Random
from typing import TypeAlias

from app.domain.evaluation import Failure
from app.domain.operator import Brief, Draft, Offspring, ProgramRecord
from app.domain.operators.mutate import mutated
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.prompting.directions import PACKAGED, shown
from app.domain.replies.edit_blocks import parse_edits
from app.domain.replies.fences import Fence, fences
from app.domain.source.edits import apply_edits
from app.domain.source.functions import find_function, renamed
from mock_llm.chat_request import ChatRequest
from mock_llm.engine import CHARS_A_TOKEN

_HEADING = re.compile(r"(?i)#+ .*\b(?:current program|parent program|program to improve)\b")
_DIRECTIONS = re.compile(r"(?m)^Propose (\d+) direction\(s\)")
_FAILED = re.compile(r"(?i)#+ .*\bcurrent program, which failed\b")
_FAILED_LINE = re.compile(r"(?m)^line (\d+): ")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
_VERSION = re.compile(r"^def (\w+)_v(\d+)\b", re.MULTILINE)
_BLOCK_MARK = "<<<<<<< SEARCH"


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice of an answer.

    Attributes:
      finish: `stop`, or `length` for a reply that was cut at the request's limit.
    """

    text: str
    finish: str = "stop"

    @property
    def tokens(self) -> int:
        return count_tokens(self.text)


Replies: TypeAlias = Callable[[ChatRequest, Random], str]
"""Returns the text of one choice."""


def count_tokens(text: str) -> int:
    """Returns the approximate number of tokens of a text, at least one."""
    return max(1, -(-len(text) // CHARS_A_TOKEN))


def cut(text: str, max_tokens: int | None) -> Reply:
    """Returns a text as a reply of at most `max_tokens`."""
    if max_tokens is None or count_tokens(text) <= max_tokens:
        return Reply(text)
    return Reply(text[: max_tokens * CHARS_A_TOKEN], "length")


def mutating(request: ChatRequest, rng: Random) -> str:
    """Returns an edit of the program in the prompt."""
    return mutating_reply(request.prompt, request.last, rng)


def scripted(texts: list[str]) -> Replies:
    """Returns the texts in order, and starts over after the last."""
    endless = itertools.cycle(texts)

    def reply(request: ChatRequest, rng: Random) -> str:  # noqa: ARG001  the request is ignored
        return next(endless)

    return reply


def read_script(path: Path) -> list[str]:
    r"""Returns the replies of a file, in order.

    A `.jsonl` file holds a reply a line, as a JSON string or as an object with `content`; any other
    file is one reply.

    Raises:
      OSError: The file cannot be read.
      ValueError: The file holds no reply, or a line that is none.
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


def mutating_reply(prompt: str, last: str, rng: Random) -> str:
    """Returns a reply that edits the prompt's program: as blocks if it asks for them, else whole.

    Args:
      prompt: The texts of all messages.
      last: The text of the user's last message, which holds the program.
      rng: Draws the edit.
    """
    if "Propose " in last and (wanted := _DIRECTIONS.search(last)):
        drawn = rng.sample(PACKAGED, min(int(wanted[1]), len(PACKAGED)))
        return "".join(f"{n}. {shown(direction)}\n" for n, direction in enumerate(drawn, 1))
    program = program_in(last)
    if program is None:
        return "I see no program in this prompt, so there is nothing to change."
    version = _next_version(program.text, rng)
    if version is not None:
        return version
    child = _mended(program.text, last) or edit(
        Program(program.text, program.language or "python"), rng
    )
    if child is None:
        return "I can think of no edit that changes this program."
    text, note = child
    if _BLOCK_MARK in prompt:
        return f"A simulated edit: {note}.\n\n{search_replace(program.text, text)}"
    return f"A simulated edit: {note}.\n\n```{program.language}\n{text.rstrip()}\n```\n"


def program_in(prompt: str) -> Fence | None:
    """Returns the program that a prompt asks to improve.

    That is the first fence below the last heading that names the current program; without such a
    heading the last fence that is neither a template nor an example of the answer's form.
    """
    for below in reversed(_below(_HEADING, prompt)):
        programs = _programs(below)
        if programs:
            return programs[0]
    programs = _programs(prompt)
    return programs[-1] if programs else None


def _below(heading: re.Pattern[str], prompt: str) -> list[str]:
    """Returns the text below each heading that a pattern matches, in order."""
    lines = prompt.split("\n")
    return [
        "\n".join(lines[n:])
        for n, line in enumerate(lines, 1)
        if line.startswith("#") and heading.match(line)
    ]


def _programs(text: str) -> list[Fence]:
    return [
        fence
        for fence in fences(text)
        if fence.closed and len(fence.text.splitlines()) > 1 and _BLOCK_MARK not in fence.text
    ]


def edit(program: Program, rng: Random) -> tuple[str, str] | None:
    """Returns an edited text and a note about the edit; None where no edit is possible."""
    if program.language != "python":
        return _other_number(program.source, rng)
    draft = Draft(0, island=0, epoch=0, generation=1, parents=(program.id,))
    records = {program.id: ProgramRecord(program)}
    brief = Brief("", program.language, (draft,), records, seed=str(rng.getrandbits(64)))
    child = mutated(brief, draft)
    return (child.program.source, child.changes) if isinstance(child, Offspring) else None


def _mended(source: str, prompt: str) -> tuple[str, str] | None:
    """Returns a program without the line that its prompt names as failed; None if it names none."""
    named = [line for below in _below(_FAILED, prompt)[:1] for line in _FAILED_LINE.findall(below)]
    lines = source.split("\n")
    if not named or not 0 < (number := int(named[-1])) <= len(lines):
        return None
    line = lines[number - 1]
    indentation = line[: len(line) - len(line.lstrip())]
    mended = [*lines[: number - 1], f"{indentation}pass", *lines[number:]]
    return "\n".join(mended), f"line {number} failed and is removed"


def _next_version(text: str, rng: Random) -> str | None:
    """Returns an edit of the last complete version of a function whose next version is empty."""
    versions = _VERSION.findall(text)
    if not versions:
        return None
    name, number = versions[-1][0], int(versions[-1][1])
    empty = find_function(text, f"{name}_v{number}")
    before = find_function(text, f"{name}_v{number - 1}")
    if empty is None or before is None or empty.body.strip():
        return None
    version = before.header + before.docstring + before.body
    above = text[: text.index(f"def {versions[0][0]}_v{versions[0][1]}")]
    child = edit(Program(above + renamed(version, before.name, name)), rng)
    function = find_function(child[0], name) if child else None
    if child is None or function is None:
        return "I can think of no edit that changes this function."
    new = renamed(function.header + function.body, name, empty.name)
    return f"A simulated edit: {child[1]}.\n\n```python\n{new.rstrip()}\n```\n"


def _other_number(source: str, rng: Random) -> tuple[str, str] | None:
    """Returns a text of any language with one of its numbers changed."""
    numbers = list(_NUMBER.finditer(source))
    if not numbers:
        return None
    number = rng.choice(numbers)
    old = number.group()
    new = f"{float(old) * rng.uniform(0.5, 2.0) + 0.1:.4g}" if "." in old else str(int(old) + 1)
    return source[: number.start()] + new + source[number.end() :], f"{old} becomes {new}"


def search_replace(before: str, after: str) -> str:
    """Returns the SEARCH/REPLACE blocks that turn one text into the other.

    Each block's search is widened until it occurs once.  Where the blocks, applied in order, would
    not give the text, one block holds all the changes.
    """
    old, new = before.rstrip("\n").split("\n"), after.rstrip("\n").split("\n")
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    changes = [_LineChange(*lines) for tag, *lines in matcher.get_opcodes() if tag != "equal"]
    if not changes:
        return ""
    text = _written([_block(old, new, change) for change in changes])
    if len(changes) > 1 and not _gives(before, text, after):
        first, last = changes[0], changes[-1]
        whole = _LineChange(first.start, last.end, first.new_start, last.new_end)
        text = _written([_block(old, new, whole)])
    return text


@dataclass(frozen=True, slots=True)
class _LineChange:
    """Lines of the old text, and the lines of the new text that replace them."""

    start: int
    end: int
    new_start: int
    new_end: int


@dataclass(frozen=True, slots=True)
class _SearchReplace:
    search: list[str]
    replace: list[str]


def _block(old: list[str], new: list[str], change: _LineChange) -> _SearchReplace:
    start, end = _widened(old, change.start, change.end)
    inside = new[change.new_start : change.new_end]
    replace = [*old[start : change.start], *inside, *old[change.end : end]]
    return _SearchReplace(old[start:end], replace)


def _written(blocks: list[_SearchReplace]) -> str:
    return "\n".join(
        "\n".join([_BLOCK_MARK, *block.search, "=======", *block.replace, ">>>>>>> REPLACE\n"])
        for block in blocks
    )


def _gives(before: str, blocks: str, after: str) -> bool:
    """Returns whether the blocks, read as a reply, turn one text into the other."""
    edits = parse_edits(blocks, EditRules())
    made = edits if isinstance(edits, Failure) else apply_edits(before, edits)
    return isinstance(made, str) and _lines(made) == _lines(after)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _widened(lines: list[str], start: int, end: int) -> tuple[int, int]:
    """Returns the lines around a change that occur once and neither begin nor end blank."""
    while start > 0 or end < len(lines):
        search = lines[start:end]
        if search and search[0].strip() and search[-1].strip() and _count(lines, search) == 1:
            break
        start, end = max(0, start - 1), min(len(lines), end + 1)
    return start, end


def _count(lines: list[str], search: list[str]) -> int:
    n = len(search)
    return sum(lines[at : at + n] == search for at in range(len(lines) - n + 1))
