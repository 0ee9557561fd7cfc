"""Edit blocks: the SEARCH/REPLACE blocks of a reply, read as edits.

The markers are those of merge conflicts, which OpenEvolve and others ask for; Cline's spelling
(`------- SEARCH` to `+++++++ REPLACE`) is accepted too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import EditRules
from app.domain.replies.fences import Fence, fences
from app.domain.replies.second_thoughts import elides, is_example, starts_anew
from app.domain.source.edits import Edit, apply_edits
from app.domain.source.functions import defined_names, with_definitions

_SEARCH = re.compile(r"\s*(?:<{5,9}|-{5,9}) ?SEARCH:?\s*")
_DIVIDER = re.compile(r"\s*={5,9}\s*")
_REPLACE = re.compile(r"\s*(?:>{5,9}|\+{5,9}) ?REPLACE\s*")
_SEARCH_WORD = re.compile(r"\W*(?:search|find)(?: code| lines?| section)?\W*", re.IGNORECASE)
_REPLACE_WORD = re.compile(
    r"\W*(?:replace|replace with|replacement)(?: code| lines?| section)?\W*", re.IGNORECASE
)
_REMARK = re.compile(r"\s*(?:#|//|(?:the )?lines of the \w+ program(?: to replace)?, copied)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[\w+#.-]*\s*")


@dataclass(frozen=True, slots=True)
class Block:
    """One edit of a reply.

    Attributes:
      first, end: Its lines in the reply, from 0; `end` is excluded.
      above: The text between it and the block before.
    """

    edit: Edit
    first: int
    end: int
    above: str


@dataclass(frozen=True, slots=True)
class Blocks:
    """The edits of a reply, in order.

    Attributes:
      unfinished: What the last block lacks, where the reply ends inside it; that block is not among
        the edits.  "" where every block is complete.
      rest: The reply with blank lines in the place of the blocks.
    """

    blocks: tuple[Block, ...]
    unfinished: str = ""
    rest: str = ""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of all blocks."""
        return tuple(block.edit for block in self.blocks)


@dataclass(frozen=True, slots=True)
class _Found:
    """The sections of a block at lines `first` (included) to `end` (excluded)."""

    search: tuple[str, ...]
    replace: tuple[str, ...]
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _Read:
    blocks: list[_Found]
    unfinished: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """A source after the edits of a reply that stand."""

    source: str
    edits: tuple[Edit, ...]


def parse_edits(reply: str, rules: EditRules) -> list[Edit] | Failure:
    """Returns the edits of a reply in order, at least one; or why the reply has none."""
    blocks = parse_blocks(reply, rules)
    if isinstance(blocks, Failure):
        return blocks
    if blocks.unfinished:
        return Failure(FailureKind.BAD_EDIT, blocks.unfinished)
    return list(blocks.edits)


def parse_blocks(reply: str, rules: EditRules) -> Blocks | Failure:
    """Returns the complete blocks of a reply; at least one, or an unfinished block.

    Without markers, a fence below the word SEARCH and a fence below the word REPLACE are a block.
    """
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    read: _Read | Failure
    if rules.diff_pattern != EditRules().diff_pattern:
        read = _Read(
            [_matched(match) for match in re.finditer(rules.diff_pattern, text, re.DOTALL)]
        )
    else:
        read = _read_blocks(text.split("\n"))
        if isinstance(read, _Read) and not read.blocks and not read.unfinished:
            read = _Read(_below_words(fences(text)))
    if isinstance(read, Failure):
        return read
    if not read.blocks and not read.unfinished:
        return Failure(FailureKind.NO_CODE, "The reply holds no SEARCH/REPLACE block.")
    rows, blocks, at = text.split("\n"), list[Block](), 0
    for number, found in enumerate(read.blocks, 1):
        edit = Edit(_section(found.search), _section(found.replace))
        if not edit.search:
            return Failure(FailureKind.BAD_EDIT, f"Block {number}: its SEARCH section is empty.")
        above = "\n".join(row for row in rows[at : found.first] if not _FENCE.fullmatch(row))
        blocks.append(Block(edit, found.first, found.end, above))
        at = found.end
    for block in blocks:
        rows[block.first : block.end] = [""] * (block.end - block.first)
    return Blocks(tuple(blocks), read.unfinished, "\n".join(rows))


def apply_blocks(source: str, blocks: Sequence[Block], *, inside: bool) -> Applied | Failure:
    """Returns the source after the blocks that stand, each applied to the result of the one before.

    Blocks before words that withdraw them do not count, if the others apply without them.  A block
    that does not apply takes the place of an earlier one which changed the lines that it seeks:
    the two are an edit and its correction.  A block whose sections are both whole functions of the
    same names replaces these functions, also where they were quoted from another program.  A block
    that is marked as an example, or whose SEARCH section is comments only, counts only if it
    applies.

    Args:
      source: The text to edit.
      blocks: In order, at least one.
      inside: Whether a match in an EVOLVE-BLOCK region goes before matches elsewhere.
    """
    anew = [n for n, block in enumerate(blocks) if n and starts_anew(block.above)]
    for first in (*anew[-1:], 0):
        applied = _corrected(source, blocks[first:], inside=inside)
        if isinstance(applied, Applied):
            return applied
    return applied


def _corrected(source: str, blocks: Sequence[Block], *, inside: bool) -> Applied | Failure:
    standing: list[Edit] = []
    texts = [source]
    for number, block in enumerate(blocks):
        after = apply_edits(texts[-1], [block.edit], inside=inside)
        if isinstance(after, str):
            standing.append(block.edit)
            texts.append(after)
            continue
        corrected = _without_corrected(texts, standing, block.edit, inside=inside)
        if corrected is not None:
            standing = list(corrected.edits)
            texts = _texts(source, standing, inside=inside)
            continue
        replaced = _with_functions(texts[-1], block.edit)
        if replaced is not None:
            standing.append(block.edit)
            texts.append(replaced)
            continue
        if len(blocks) > 1 and _is_form(block):
            continue
        return Failure(after.kind, after.detail.replace("1 of 1", f"{number + 1} of {len(blocks)}"))
    if not standing:
        return Failure(FailureKind.BAD_EDIT, "Each of its blocks shows a form or an example.")
    return Applied(texts[-1], tuple(standing))


def _without_corrected(
    texts: Sequence[str], standing: Sequence[Edit], edit: Edit, *, inside: bool
) -> Applied | None:
    """Returns an edit applied without the earlier ones that changed the lines that it seeks."""
    kept, before = list(standing), list(texts)
    while kept:
        changed = next(
            (n for n in reversed(range(len(kept))) if _seeks(edit, before[n], kept[n])), -1
        )
        if changed < 0:
            return None
        del kept[changed]
        before = _texts(texts[0], kept, inside=inside)
        if len(before) <= len(kept):
            return None
        after = apply_edits(before[-1], [edit], inside=inside)
        if isinstance(after, str):
            return Applied(after, (*kept, edit))
    return None


def _seeks(edit: Edit, text: str, earlier: Edit) -> bool:
    """Returns whether an edit seeks lines of the text to which an earlier edit was applied."""
    if [line.strip() for line in edit.search] == [line.strip() for line in earlier.search]:
        return True
    return isinstance(apply_edits(text, [edit], certain=True), str)


def _with_functions(source: str, edit: Edit) -> str | None:
    """Returns a Python source with the functions of an edit from functions to functions."""
    search, replace = "\n".join(edit.search), "\n".join(edit.replace)
    names = defined_names(search)
    if not names or names != defined_names(replace) or elides(search, source):
        return None
    return with_definitions(source.replace("\r\n", "\n"), replace + "\n")


def _texts(source: str, edits: Sequence[Edit], *, inside: bool) -> list[str]:
    """Returns the source and the text after each edit, up to the first that does not apply."""
    texts = [source]
    for edit in edits:
        after = apply_edits(texts[-1], [edit], inside=inside)
        if isinstance(after, Failure):
            break
        texts.append(after)
    return texts


def _is_form(block: Block) -> bool:
    """Returns whether a block shows the form of an answer: an example, or remarks for lines."""
    search = block.edit.search
    remarks = all(not line.strip() or _REMARK.match(line) for line in search)
    return remarks or is_example(block.above, search[0])


def _matched(match: re.Match[str]) -> _Found:
    first = match.string.count("\n", 0, match.start())
    end = first + match.group(0).rstrip("\n").count("\n") + 1
    return _Found(
        tuple((match.group(1) or "").split("\n")),
        tuple((match.group(2) or "").split("\n")),
        first,
        end,
    )


def _below_words(passages: Sequence[Fence]) -> list[_Found]:
    """Returns the pairs of fences below the words SEARCH and REPLACE."""
    return [
        _Found(
            tuple(search.text.split("\n")),
            tuple(replace.text.split("\n")),
            search.first,
            replace.end,
        )
        for search, replace in pairwise(passages)
        if _SEARCH_WORD.fullmatch(search.above.rstrip().rpartition("\n")[2])
        and _REPLACE_WORD.fullmatch(replace.above.strip())
        and replace.closed
    ]


def _read_blocks(text: list[str]) -> _Read | Failure:
    blocks: list[_Found] = []
    search: list[str] | None = None
    replace: list[str] | None = None
    first = 0
    for number, line in enumerate(text, 1):
        where = f"Block {len(blocks) + 1} (line {number} of the reply)"
        if _SEARCH.fullmatch(line):
            if search is not None:
                return Failure(FailureKind.BAD_EDIT, f"{where}: a SEARCH inside another block.")
            search, replace, first = [], None, number - 1
        elif _REPLACE.fullmatch(line):
            if search is None or replace is None:
                return Failure(
                    FailureKind.BAD_EDIT, f"{where}: a REPLACE without SEARCH and =======."
                )
            blocks.append(_Found(tuple(search), tuple(replace), first, number))
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


def _section(text: Sequence[str]) -> tuple[str, ...]:
    """Returns a section without blank lines at its ends and without a fence around it."""
    section = _trimmed(text)
    if len(section) >= 2 and _FENCE.fullmatch(section[0]) and _FENCE.fullmatch(section[-1]):
        section = _trimmed(section[1:-1])
    return tuple(section)


def _trimmed(text: Sequence[str]) -> list[str]:
    numbers = [number for number, line in enumerate(text) if line.strip()]
    return list(text[numbers[0] : numbers[-1] + 1]) if numbers else []
