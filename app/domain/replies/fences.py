"""Fenced passages of a reply, and which of them is the program."""

import ast
import re
from dataclasses import dataclass

from app.domain.program import Program, fingerprint
from app.domain.source.regions import parse
from app.domain.source.syntax import syntax_tree

_FENCE = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^`\n]*+")
_DEEPER = 4  # columns from which a fence inside another belongs to the program, as in CommonMark
PROSE = frozenset({"text", "txt", "markdown", "md", "plaintext"})
"""Languages whose programs have no grammar, and may hold fences of their own."""
_ALIASES = {"py": "python", "python3": "python", "c++": "cpp", "js": "javascript", "rs": "rust"}


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced passage; not `closed` where the reply ends inside it."""

    language: str
    text: str
    closed: bool


def fences(text: str) -> list[Fence]:
    """Returns the fenced passages in order, each without the indentation of its fence.

    Fences deep inside a passage are its own, as are labelled ones in a passage of prose.
    """
    found: list[Fence] = []
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
                found.append(_fence(opening, body, True))
                opening = None
                continue
        body.append(line)
    if opening is not None:
        found.append(_fence(opening, body, False))
    return found


def _depth(fence: re.Match[str]) -> int:
    return len(fence.group(1).expandtabs(_DEEPER))


def _fence(opening: re.Match[str], body: list[str], closed: bool) -> Fence:
    margin = opening.group(1)
    text = "".join(line.removeprefix(margin) + "\n" for line in body)
    return Fence(canonical(opening.group(3)), text.rstrip("\n") + "\n", closed)


def canonical(language: str) -> str:
    """Returns a language's one name: `python` for `py`, in lower case."""
    return _ALIASES.get(language.lower(), language.lower())


def chosen(found: list[Fence], parent: Program) -> Fence | None:
    """Returns the passage that is most likely the new program; None where there is none.

    In this order: as many EVOLVE-BLOCK regions as the parent, the parent's language, another
    program than the parent, more of the parent's top-level definitions, earlier in the reply.
    """
    blocks = len(parse(parent.source).blocks)
    language, own, print_ = canonical(parent.language), definitions(parent), fingerprint(parent)
    ranked = sorted(
        (fence for fence in found if fence.text.strip()),
        key=lambda fence: (
            bool(blocks) and len(parse(fence.text).blocks) != blocks,
            fence.language != language,
            fingerprint(Program(fence.text, parent.language)) == print_,
            -len(own & definitions(Program(fence.text, parent.language))),
        ),
    )
    return ranked[0] if ranked else None


def whole(found: list[Fence], parent: Program) -> Fence | None:
    """Returns the passage that is a whole program beyond doubt, where exactly one is.

    It has as many EVOLVE-BLOCK regions as the parent and all of its top-level definitions, of which
    there is one at least.
    """
    own, blocks = definitions(parent), len(parse(parent.source).blocks)
    complete = [
        fence
        for fence in found
        if fence.closed
        and own
        and own <= definitions(Program(fence.text, parent.language))
        and len(parse(fence.text).blocks) == blocks
    ]
    return complete[0] if len(complete) == 1 else None


def definitions(program: Program) -> frozenset[str]:
    """Returns the functions and classes a Python program defines at top level; none of others."""
    if program.language != "python":
        return frozenset()
    try:
        tree = syntax_tree(program.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))
