"""Fences: the fenced passages of a reply, and which of them is the program."""

import ast
import re
from dataclasses import dataclass

from app.domain.program import Program, fingerprint
from app.domain.source.regions import parse
from app.domain.source.syntax import remembered, tree_or_none

_FENCE = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^`\n]*+")
_DEEPER = 4  # columns of indentation at which a fence is part of the passage, as in CommonMark
PROSE = frozenset({"text", "txt", "markdown", "md", "plaintext"})
"""Languages without a grammar, whose programs may contain fences."""
_ALIASES = {"py": "python", "python3": "python", "c++": "cpp", "js": "javascript", "rs": "rust"}


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced passage; `closed` is false where the reply ends inside it."""

    language: str
    text: str
    closed: bool


def fences(text: str) -> list[Fence]:
    """Returns the fenced passages in order, each without the indentation of its fence.

    A deeply indented fence is part of the passage around it, and so is a labelled fence in a
    passage of prose.
    """
    passages: list[Fence] = []
    opening: re.Match[str] | None = None
    body: list[str] = []
    inner = False
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if opening is None:
            opening, body, inner = match, [], False
            continue
        if match is not None and _depth(match) < _depth(opening) + _DEEPER:
            if match.group(3):
                inner = inner or canonical(opening.group(3)) in PROSE
            elif inner:
                inner = False
            elif match.group(2).startswith(opening.group(2)):
                passages.append(_fence(opening, body, True))
                opening = None
                continue
        body.append(line)
    if opening is not None:
        passages.append(_fence(opening, body, False))
    return passages


def _depth(fence: re.Match[str]) -> int:
    return len(fence.group(1).expandtabs(_DEEPER))


def _fence(opening: re.Match[str], body: list[str], closed: bool) -> Fence:
    margin = opening.group(1)
    text = "".join(line.removeprefix(margin) + "\n" for line in body)
    return Fence(canonical(opening.group(3)), text.rstrip("\n") + "\n", closed)


def canonical(language: str) -> str:
    """Returns a language's canonical name in lower case: `python` for `py`."""
    return _ALIASES.get(language.lower(), language.lower())


def likeliest_program(passages: list[Fence], parent: Program) -> Fence | None:
    """Returns the passage that is most likely the new program; None where there is none.

    The criteria, in this order: as many EVOLVE-BLOCK regions as the parent, the parent's language,
    another program than the parent, more of the parent's top-level definitions, earlier in the
    reply.
    """
    written = [fence for fence in passages if fence.text.strip()]
    if len(written) < 2:
        return next(iter(written), None)
    blocks = len(parse(parent.source).blocks)
    language, required = canonical(parent.language), definitions(parent)
    unchanged = fingerprint(parent)
    ranked = sorted(
        written,
        key=lambda fence: (
            bool(blocks) and len(parse(fence.text).blocks) != blocks,
            fence.language != language,
            fingerprint(Program(fence.text, parent.language)) == unchanged,
            -len(required & definitions(Program(fence.text, parent.language))),
        ),
    )
    return ranked[0]


def only_whole_program(passages: list[Fence], parent: Program) -> Fence | None:
    """Returns the passage that is certainly a whole program, if exactly one is.

    Such a passage has as many EVOLVE-BLOCK regions as the parent and all of the parent's top-level
    definitions, of which there is at least one.
    """
    required, blocks = definitions(parent), len(parse(parent.source).blocks)
    complete = [
        fence
        for fence in passages
        if fence.closed
        and required
        and required <= definitions(Program(fence.text, parent.language))
        and len(parse(fence.text).blocks) == blocks
    ]
    return complete[0] if len(complete) == 1 else None


def definitions(program: Program) -> frozenset[str]:
    """Returns the top-level functions and classes of a Python program; none in other languages."""
    return _definitions(program.source) if program.language == "python" else frozenset()


@remembered
def _definitions(source: str) -> frozenset[str]:
    tree = tree_or_none(source)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in (tree.body if tree else ()) if isinstance(node, kinds))
