"""Fences: the fenced passages of a reply, and which of them is the program."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.program import Program, fingerprint
from app.domain.replies.second_thoughts import elides, is_example, withdraws
from app.domain.source.regions import parse
from app.domain.source.syntax import DEFINITION_NODES, remembered, tree_or_none

_FENCE = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^`\n]*+")
_DEEPER = 4
"""Columns of indentation at which a fence is part of the passage, as in CommonMark."""
PROSE = frozenset({"text", "txt", "markdown", "md", "plaintext"})
"""Languages without a grammar, whose programs may contain fences."""
_ALIASES = {"py": "python", "python3": "python", "c++": "cpp", "js": "javascript", "rs": "rust"}
_DEFINED = re.compile(r"^(?:async def|def|class) (\w+)", re.MULTILINE)
_DECLARED = re.compile(
    r"^[ \t]*+(?:\w+ ){0,4}(?:fn|func|function|fun|def|class|struct|enum|trait|interface|proc|sub"
    r"|subroutine|procedure|contract)\s+(\w+)",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced passage.

    Attributes:
      closed: False where the reply ends inside it, or the next passage begins.
      first, end: Its lines in the reply, from 0, fences included; `end` is excluded.
      above, below: The text between it and its neighbours.
    """

    language: str
    text: str
    closed: bool
    first: int = 0
    end: int = 0
    above: str = ""
    below: str = ""


def fences(text: str) -> list[Fence]:
    """Returns the fenced passages in order, each without the indentation of its fence.

    Blank passages are left out, except for one in which the reply ends.  A deeply indented fence is
    part of the passage around it, and so is a labelled fence in a passage of prose.  Another
    labelled fence ends a passage whose own end is missing, unless it stands in a string of three
    quotation marks.
    """
    passages: list[Fence] = []
    between: list[list[str]] = [[]]
    opening: re.Match[str] | None = None
    first, body, inner, quotes = 0, [""], False, 0
    for number, line in enumerate(text.split("\n")):
        match = _FENCE.fullmatch(line)
        if opening is None:
            if match is None:
                between[-1].append(line)
                continue
            opening, first, body, inner, quotes = match, number, [], False, 0
            continue
        if match is not None and _depth(match) < _depth(opening) + _DEEPER:
            if match.group(3):
                if not quotes % 2 and _begins_another(match, opening):
                    passages.append(_fence(opening, body, False, first, number))
                    between.append([])
                    opening, first, body, inner, quotes = match, number, [], False, 0
                    continue
                inner = inner or canonical(opening.group(3)) in PROSE
            elif inner:
                inner = False
            elif match.group(2).startswith(opening.group(2)):
                passages.append(_fence(opening, body, True, first, number + 1))
                between.append([])
                opening = None
                continue
        body.append(line)
        quotes += line.count('"""') + line.count("'''")
    if opening is not None:
        passages.append(_fence(opening, body, False, first, text.count("\n") + 1))
        between.append([])
    beside = ["\n".join(lines) for lines in between]
    return [
        replace(passage, above=above, below=below)
        for passage, above, below in zip(passages, beside, beside[1:], strict=False)
        if not passage.closed or passage.text.strip()
    ]


def _fence(
    opening: re.Match[str], body: Sequence[str], closed: bool, first: int, end: int
) -> Fence:
    text = "".join(line.removeprefix(opening.group(1)) + "\n" for line in body)
    return Fence(canonical(opening.group(3)), text.strip("\n") + "\n", closed, first, end)


def _depth(fence: re.Match[str]) -> int:
    return len(fence.group(1).expandtabs(_DEEPER))


def _begins_another(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """Returns whether a labelled fence inside a passage can only be the next passage."""
    return canonical(opening.group(3)) not in PROSE and fence.group(2).startswith(opening.group(2))


def canonical(language: str) -> str:
    """Returns a language's canonical name in lower case: `python` for `py`."""
    return _ALIASES.get(language.lower(), language.lower())


def likeliest_program(passages: Sequence[Fence], parent: Program) -> Fence | None:
    """Returns the passage that is most likely the new program; None where there is none.

    The criteria, in this order: as many EVOLVE-BLOCK regions as the parent, the parent's language,
    another program than the parent, no mark of an example, all of the parent's definitions, no
    withdrawal after it, no syntax error, more of the parent's definitions, later in the reply.
    """
    written = [fence for fence in passages if fence.text.strip()]
    if len(written) < 2:
        return next(iter(written), None)
    blocks = len(parse(parent.source).blocks)
    required, unchanged = definitions(parent), fingerprint(parent)

    def faults(fence: Fence) -> tuple[bool | int, ...]:
        program = Program(fence.text, parent.language)
        regions = len(parse(fence.text).blocks) if blocks else 0
        known = required & definitions(program)
        return (
            regions != blocks,
            not _in_language(fence, program),
            fingerprint(program) == unchanged,
            is_example(fence.above, fence.text),
            (not blocks and known != required) or elides(fence.text, parent.source),
            withdraws(fence.below),
            program.language == "python" and tree_or_none(fence.text) is None,
            -len(known),
        )

    return min(reversed(written), key=faults)


def whole_program(passages: Sequence[Fence], parent: Program) -> Fence | None:
    """Returns the likeliest of the passages that are certainly whole programs, if there is one.

    Such a passage has as many EVOLVE-BLOCK regions as the parent and all of the parent's top-level
    definitions, of which there is at least one.
    """
    return likeliest_program([fence for fence in passages if is_whole(fence, parent)], parent)


def is_whole(fence: Fence, parent: Program) -> bool:
    """Returns whether a passage is certainly a whole program."""
    required, blocks = definitions(parent), len(parse(parent.source).blocks)
    return (
        fence.closed
        and bool(required)
        and required <= definitions(Program(fence.text, parent.language))
        and len(parse(fence.text).blocks) == blocks
    )


def _in_language(fence: Fence, program: Program) -> bool:
    if fence.language:
        return fence.language == canonical(program.language)
    return is_program(program)


def is_program(program: Program) -> bool:
    """Returns whether a text without a label is a program rather than a sentence or output.

    A single word is a Python expression, so a Python program must contain another statement.
    """
    if program.language != "python":
        return True
    tree = tree_or_none(program.source)
    return tree is not None and any(not isinstance(node, ast.Expr) for node in tree.body)


def definitions(program: Program) -> frozenset[str]:
    """Returns the top-level functions and classes of a Python program.

    Of a program in another language, and of Python that does not parse, they are the names after
    the keywords that declare functions and types in most languages.
    """
    return _definitions(program.source) if program.language == "python" else _declared(program)


@remembered
def _definitions(source: str) -> frozenset[str]:
    tree = tree_or_none(source)
    if tree is None:
        return frozenset(_DEFINED.findall(source))
    return frozenset(node.name for node in tree.body if isinstance(node, DEFINITION_NODES))


def _declared(program: Program) -> frozenset[str]:
    if canonical(program.language) in PROSE:
        return frozenset()
    return frozenset(_DECLARED.findall(program.source))
