"""Edit blocks: the SEARCH/REPLACE blocks of a reply, read as edits.

The markers are those of merge conflicts, which OpenEvolve and others ask for; Cline's spelling
(`------- SEARCH` to `+++++++ REPLACE`) is accepted too.
"""

import re
from dataclasses import dataclass

from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import EditRules
from app.domain.source.edits import Edit

_SEARCH = re.compile(r"\s*(?:<{5,9}|-{5,9}) ?SEARCH:?\s*")
_DIVIDER = re.compile(r"\s*={5,9}\s*")
_REPLACE = re.compile(r"\s*(?:>{5,9}|\+{5,9}) ?REPLACE\s*")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[\w+#.-]*\s*")


@dataclass(frozen=True, slots=True)
class Blocks:
    """The edits of a reply, in order.

    Attributes:
      unfinished: What the last block lacks, where the reply ends inside it; that block is not among
        the edits.  "" where every block is complete.
    """

    edits: tuple[Edit, ...]
    unfinished: str = ""


@dataclass(frozen=True, slots=True)
class _Read:
    blocks: list[tuple[list[str], list[str]]]
    unfinished: str = ""


def parse_edits(reply: str, rules: EditRules) -> list[Edit] | Failure:
    """Returns the edits of a reply in order, at least one; or why the reply has none."""
    blocks = parse_blocks(reply, rules)
    if isinstance(blocks, Failure):
        return blocks
    if blocks.unfinished:
        return Failure(FailureKind.BAD_EDIT, blocks.unfinished)
    return list(blocks.edits)


def parse_blocks(reply: str, rules: EditRules) -> Blocks | Failure:
    """Returns the complete blocks of a reply; at least one, or an unfinished block."""
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    if rules.diff_pattern != EditRules().diff_pattern:
        matches = re.finditer(rules.diff_pattern, text, re.DOTALL)
        read: _Read | Failure = _Read(
            [((m.group(1) or "").split("\n"), (m.group(2) or "").split("\n")) for m in matches]
        )
    else:
        read = _read_blocks(text.split("\n"))
    if isinstance(read, Failure):
        return read
    if not read.blocks and not read.unfinished:
        return Failure(FailureKind.NO_CODE, "The reply holds no SEARCH/REPLACE block.")
    edits = tuple(Edit(_section(search), _section(replace)) for search, replace in read.blocks)
    for number, edit in enumerate(edits, 1):
        if not edit.search:
            return Failure(FailureKind.BAD_EDIT, f"Block {number}: its SEARCH section is empty.")
    return Blocks(edits, read.unfinished)


def _read_blocks(text: list[str]) -> _Read | Failure:
    blocks: list[tuple[list[str], list[str]]] = []
    search: list[str] | None = None
    replace: list[str] | None = None
    for number, line in enumerate(text, 1):
        where = f"Block {len(blocks) + 1} (line {number} of the reply)"
        if _SEARCH.fullmatch(line):
            if search is not None:
                return Failure(FailureKind.BAD_EDIT, f"{where}: a SEARCH inside another block.")
            search, replace = [], None
        elif _REPLACE.fullmatch(line):
            if search is None or replace is None:
                return Failure(
                    FailureKind.BAD_EDIT, f"{where}: a REPLACE without SEARCH and =======."
                )
            blocks.append((search, replace))
            search = replace = None
        elif search is not None and _DIVIDER.fullmatch(line):
            if replace is not None:
                return Failure(FailureKind.BAD_EDIT, f"{where}: more than one line of =======.")
            replace = []
        elif replace is not None:
            replace.append(line)
        elif search is not None:
            search.append(line)
    if search is None:
        return _Read(blocks)
    missing = "=======" if replace is None else ">>>>>>> REPLACE"
    return _Read(blocks, f"Block {len(blocks) + 1}: its {missing} is missing.")


def _section(text: list[str]) -> tuple[str, ...]:
    """Returns a section without blank lines at its ends and without a fence around it."""
    section = _trimmed(text)
    if len(section) >= 2 and _FENCE.fullmatch(section[0]) and _FENCE.fullmatch(section[-1]):
        section = _trimmed(section[1:-1])
    return tuple(section)


def _trimmed(text: list[str]) -> list[str]:
    numbers = [number for number, line in enumerate(text) if line.strip()]
    return text[numbers[0] : numbers[-1] + 1] if numbers else []
