"""Mutating replies: the program in a prompt, edited as the operator `mutate` edits it.

Nothing here is clever: it finds the program, edits its syntax tree, and answers in the form that
the prompt asks for, as a model would.
"""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random

from app.domain.evaluation import Failure
from app.domain.operator import Brief, Draft, Offspring, ProgramRecord
from app.domain.operators.mutate import mutated
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.edit_blocks import parse_edits
from app.domain.replies.fences import Fence, fences
from app.domain.source.edits import apply_edits
from app.domain.source.functions import find_function, renamed

_HEADING = re.compile(r"(?im)^#+ .*\b(?:current program|parent program|program to improve)\b.*$")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
_VERSION = re.compile(r"^def (\w+)_v(\d+)\b", re.MULTILINE)
_BLOCK_MARK = "<<<<<<< SEARCH"


def mutating_reply(prompt: str, last: str, rng: Random) -> str:
    """Returns a reply that edits the prompt's program: blocks if it asks for them, else all of it.

    Args:
      prompt: The texts of all messages.
      last: The text of the last one from the user, which holds the program.
      rng: Draws the edit.
    """
    found = program_in(last)
    if found is None:
        return "I see no program in this prompt, so there is nothing to change."
    completed = _next_version(found.text, rng)
    if completed is not None:
        return completed
    child = _child(Program(found.text, found.language or "python"), rng)
    if child is None:
        return "I can think of no edit that changes this program."
    text, note = child
    if _BLOCK_MARK in prompt:
        return f"A simulated edit: {note}.\n\n{search_replace(found.text, text)}"
    return f"A simulated edit: {note}.\n\n```{found.language}\n{text.rstrip()}\n```\n"


def program_in(prompt: str) -> Fence | None:
    """Returns the program a prompt is about.

    It is the first fence below the last heading that speaks of the current program; without such a
    heading the last fence that is neither a template nor an example of the answer's form.
    """
    headings = list(_HEADING.finditer(prompt))
    for heading in reversed(headings):
        below = _programs(prompt[heading.end() :])
        if below:
            return below[0]
    every = _programs(prompt)
    return every[-1] if every else None


def _programs(text: str) -> list[Fence]:
    return [
        fence
        for fence in fences(text)
        if fence.closed and len(fence.text.splitlines()) > 1 and _BLOCK_MARK not in fence.text
    ]


def _child(program: Program, rng: Random) -> tuple[str, str] | None:
    """Returns an edited text and what was done to it; None where no edit is found."""
    if program.language != "python":
        return _other_number(program.source, rng)
    draft = Draft(0, island=0, epoch=0, generation=1, parents=(program.id,))
    known = {program.id: ProgramRecord(program)}
    brief = Brief("", program.language, (draft,), known, seed=str(rng.getrandbits(64)))
    child = mutated(brief, draft)
    return (child.program.source, child.changes) if isinstance(child, Offspring) else None


def _next_version(text: str, rng: Random) -> str | None:
    """Returns an edit of the last whole version of a function, where the next is asked for."""
    found = _VERSION.findall(text)
    if not found:
        return None
    name, number = found[-1][0], int(found[-1][1])
    asked = find_function(text, f"{name}_v{number}")
    before = find_function(text, f"{name}_v{number - 1}")
    if asked is None or before is None or asked.body.strip():
        return None
    version = before.header + before.docstring + before.body
    above = text[: text.index(f"def {found[0][0]}_v{found[0][1]}")]
    child = _child(Program(above + renamed(version, before.name, name)), rng)
    function = find_function(child[0], name) if child else None
    if child is None or function is None:
        return "I can think of no edit that changes this function."
    new = renamed(function.header + function.body, name, asked.name)
    return f"A simulated edit: {child[1]}.\n\n```python\n{new.rstrip()}\n```\n"


def _other_number(source: str, rng: Random) -> tuple[str, str] | None:
    """Returns a text of any language with one of its numbers changed."""
    places = list(_NUMBER.finditer(source))
    if not places:
        return None
    place = rng.choice(places)
    old = place.group()
    new = f"{float(old) * rng.uniform(0.5, 2.0) + 0.1:.4g}" if "." in old else str(int(old) + 1)
    return source[: place.start()] + new + source[place.end() :], f"{old} becomes {new}"


def search_replace(before: str, after: str) -> str:
    """Returns the SEARCH/REPLACE blocks that make one text of the other.

    Each block's search is widened until it is found once.  Where the blocks, applied in order,
    would not make the text, one block takes all the changes.
    """
    old, new = before.rstrip("\n").split("\n"), after.rstrip("\n").split("\n")
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    changes = [_Change(*place) for tag, *place in matcher.get_opcodes() if tag != "equal"]
    if not changes:
        return ""
    text = _written([_block(old, new, change) for change in changes])
    if len(changes) > 1 and not _makes(before, text, after):
        first, last = changes[0], changes[-1]
        whole = _Change(first.start, last.end, first.new_start, last.new_end)
        text = _written([_block(old, new, whole)])
    return text


@dataclass(frozen=True, slots=True)
class _Change:
    """Lines of the old text, and the lines of the new one that take their place."""

    start: int
    end: int
    new_start: int
    new_end: int


@dataclass(frozen=True, slots=True)
class _Block:
    search: list[str]
    replace: list[str]


def _block(old: list[str], new: list[str], change: _Change) -> _Block:
    start, end = _widened(old, change.start, change.end)
    inside = new[change.new_start : change.new_end]
    replace = [*old[start : change.start], *inside, *old[change.end : end]]
    return _Block(old[start:end], replace)


def _written(blocks: list[_Block]) -> str:
    return "\n".join(
        "\n".join([_BLOCK_MARK, *block.search, "=======", *block.replace, ">>>>>>> REPLACE\n"])
        for block in blocks
    )


def _makes(before: str, blocks: str, after: str) -> bool:
    """Returns whether a reader of replies makes one text of the other, but for blank lines."""
    edits = parse_edits(blocks, EditRules())
    made = edits if isinstance(edits, Failure) else apply_edits(before, edits)
    return isinstance(made, str) and _lines(made) == _lines(after)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _widened(lines: list[str], start: int, end: int) -> tuple[int, int]:
    """Returns the lines around a change that are found once, and neither begin nor end blank."""
    while start > 0 or end < len(lines):
        wanted = lines[start:end]
        if wanted and wanted[0].strip() and wanted[-1].strip() and _times(lines, wanted) == 1:
            break
        start, end = max(0, start - 1), min(len(lines), end + 1)
    return start, end


def _times(lines: list[str], wanted: list[str]) -> int:
    n = len(wanted)
    return sum(lines[at : at + n] == wanted for at in range(len(lines) - n + 1))
