"""SEARCH/REPLACE edits: read from a reply and applied to a program, all or none."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import EditRules

FUZZY_RATIO = 0.92
"""Likeness from which a passage is taken for the one meant: one letter in twelve may differ."""
_FUZZY_CHARS = 40  # shorter searches are too easily alike: `a + b` and `a - b` differ in one letter
_SHOWN_LINES = 12
_COMPARED_LINES = 4  # of a search found nowhere: enough to point at something, and quick

_SEARCH = re.compile(r"\s*<{5,9} ?SEARCH\s*")
_DIVIDER = re.compile(r"\s*={5,9}\s*")
_REPLACE = re.compile(r"\s*>{5,9} ?REPLACE\s*")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[\w+#.-]*\s*")


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement of whole lines; `replace` is empty for a deletion."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    first: int
    end: int
    indent: str = (
        ""  # what the replacement's lines lack, or where it starts with "-", have too much
    )


def parse_edits(reply: str, rules: EditRules) -> list[Edit] | Failure:
    """Returns the edits of a reply in order, at least one; or why they cannot be read."""
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    if rules.diff_pattern != EditRules().diff_pattern:
        found = [
            (match.group(1).split("\n"), match.group(2).split("\n"))
            for match in re.finditer(rules.diff_pattern, text, re.DOTALL)
        ]
    else:
        blocks = _read_blocks(text.split("\n"))
        if isinstance(blocks, Failure):
            return blocks
        found = blocks
    if not found:
        return Failure(FailureKind.NO_CODE, "The reply holds no SEARCH/REPLACE block.")
    edits = [Edit(_section(search), _section(replace)) for search, replace in found]
    for number, edit in enumerate(edits, 1):
        if not edit.search:
            return Failure(FailureKind.BAD_EDIT, f"Block {number}: its SEARCH section is empty.")
    return edits


def apply_edits(source: str, edits: Sequence[Edit]) -> str | Failure:
    """Returns the source with every edit applied in order, each to the result of the one before.

    A search is looked for exactly (the first place counts), then without regard to white space at
    line ends, then to the depth of indentation, then by likeness.  All but the exact search must
    point at one place only.  One edit that does not apply refuses them all: half a change is
    rarely what was meant.
    """
    newline = "\r\n" if "\r\n" in source else "\n"
    text = source.replace("\r\n", "\n").split("\n")
    for number, edit in enumerate(edits, 1):
        place = _find(text, edit.search)
        if isinstance(place, str):
            return Failure(
                FailureKind.BAD_EDIT,
                f"Block {number} of {len(edits)} {place}\nIts SEARCH section:\n"
                + _numbered(edit.search, 0),
            )
        text[place.first : place.end] = _shifted(edit.replace, place.indent)
    return newline.join(text)


def summary(edits: Sequence[Edit], *, max_lines: int = 30, max_line_chars: int = 100) -> str:
    """Returns the edits in prose: one-line changes in a line each, others as bounded blocks.

    Source: OpenEvolve 0.4.0's `metadata.changes`.
    """

    def bounded(section: tuple[str, ...]) -> str:
        kept = [_cut(line, max_line_chars) for line in section[:max_lines]]
        more = [f"... ({len(section) - max_lines} more lines)"] if len(section) > max_lines else []
        return "\n".join(f"  {line}" for line in [*kept, *more])

    parts = []
    for number, edit in enumerate(edits, 1):
        if len(edit.search) == 1 and len(edit.replace) == 1:
            before = _cut(edit.search[0].strip(), max_line_chars)
            after = _cut(edit.replace[0].strip(), max_line_chars)
            parts.append(f"Change {number}: '{before}' to '{after}'")
        elif not edit.replace:
            parts.append(f"Change {number}: Delete:\n{bounded(edit.search)}")
        else:
            parts.append(
                f"Change {number}: Replace:\n{bounded(edit.search)}\nwith:\n{bounded(edit.replace)}"
            )
    return "\n".join(parts)


def _read_blocks(text: list[str]) -> list[tuple[list[str], list[str]]] | Failure:
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
    if search is not None:
        missing = "=======" if replace is None else ">>>>>>> REPLACE"
        return Failure(FailureKind.BAD_EDIT, f"Block {len(blocks) + 1}: its {missing} is missing.")
    return blocks


def _section(text: list[str]) -> tuple[str, ...]:
    """Returns a section without blank lines at its ends and without a fence around it."""
    kept = _trimmed(text)
    if len(kept) >= 2 and _FENCE.fullmatch(kept[0]) and _FENCE.fullmatch(kept[-1]):
        kept = _trimmed(kept[1:-1])
    return tuple(kept)


def _trimmed(text: list[str]) -> list[str]:
    filled = [number for number, line in enumerate(text) if line.strip()]
    return text[filled[0] : filled[-1] + 1] if filled else []


def _find(text: list[str], search: tuple[str, ...]) -> _Place | str:
    """Returns where the search points, or why it points at no one place."""
    size, span = len(search), range(len(text) - len(search) + 1)
    for first in span:
        if tuple(text[first : first + size]) == search:
            return _Place(first, first + size)
    wanted = [line.rstrip() for line in search]
    bare = [line.rstrip() for line in text]
    found = [_Place(at, at + size) for at in span if bare[at : at + size] == wanted]
    found = found or [
        _Place(at, at + size, shift)
        for at in span
        if (shift := _indentation(bare[at : at + size], wanted)) is not None
    ]
    found = found or _alike(bare, wanted)
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(str(place.first + 1) for place in found[:8])
        return f"matches at {len(found)} places, none exactly (lines {places}): quote more lines."
    return f"matches nowhere. {_nearest(bare, wanted)}"


def _indentation(text: list[str], wanted: list[str]) -> str | None:
    """Returns the shift that turns `wanted` into `text`, or None where no one shift does."""
    have, want = (line for line in (text[0], wanted[0]))
    deep, shallow = (have, want) if len(have) >= len(want) else (want, have)
    shift = deep[: len(deep) - len(shallow)]
    if not deep.endswith(shallow) or shift.strip():
        return None
    sign = "" if deep is have else "-"
    return sign + shift if list(_shifted(wanted, sign + shift)) == text else None


def _shifted(section: Sequence[str], indent: str) -> list[str]:
    if indent.startswith("-"):
        return [line.removeprefix(indent[1:]) for line in section]
    return [indent + line if line.strip() else line for line in section]


def _alike(text: list[str], wanted: list[str]) -> list[_Place]:
    """Returns every passage alike enough, the likest of those that overlap."""
    likeness = _Likeness(wanted)
    if likeness.chars < _FUZZY_CHARS:
        return []
    scored: list[tuple[float, _Place]] = []
    for size in {len(wanted), len(wanted) - 1, len(wanted) + 1} - {0}:
        for first in range(len(text) - size + 1):
            if not text[first] or not text[first + size - 1]:
                continue  # a passage with blank lines at its ends is a smaller passage
            ratio = likeness.of(text[first : first + size], FUZZY_RATIO)
            if ratio >= FUZZY_RATIO:
                scored.append((ratio, _Place(first, first + size, _lead(text[first], wanted[0]))))
    found: list[_Place] = []
    for _, place in sorted(scored, key=lambda pair: -pair[0]):
        if all(place.end <= other.first or other.end <= place.first for other in found):
            found.append(place)
    return found


def _lead(have: str, want: str) -> str:
    deep = len(have) - len(have.lstrip()) - (len(want) - len(want.lstrip()))
    return have[:deep] if deep >= 0 else "-" + want[:-deep]


class _Likeness:
    """Compares passages with one search, indentation aside."""

    def __init__(self, wanted: list[str]) -> None:
        joined = _stripped(wanted)
        self.chars = len(joined)
        self._matcher = SequenceMatcher(None, "", joined, autojunk=False)

    def of(self, passage: list[str], least: float) -> float:
        """Returns a ratio from 0 to 1, or 0 as soon as it is certain to be under `least`."""
        self._matcher.set_seq1(_stripped(passage))
        if self._matcher.real_quick_ratio() < least or self._matcher.quick_ratio() < least:
            return 0.0
        return self._matcher.ratio()


def _stripped(passage: list[str]) -> str:
    return "\n".join(line.strip() for line in passage)


def _nearest(text: list[str], wanted: list[str]) -> str:
    """Says which passage is likest, so that a next reply can quote it."""
    size = min(len(wanted), len(text))
    compared = min(size, _COMPARED_LINES)
    likeness, best, at = _Likeness(wanted[:compared]), 0.4, -1
    for first in range(len(text) - size + 1):
        ratio = likeness.of(text[first : first + compared], best)
        if ratio > best:
            best, at = ratio, first
    if at < 0:
        return "Nothing in the program resembles it."
    return f"The nearest lines of the program:\n{_numbered(text[at : at + size], at + 1)}"


def _numbered(text: Sequence[str], first: int) -> str:
    """Returns bounded lines, numbered from `first`, or unnumbered where that is 0."""
    shown = [
        (f"{first + number:5d} | " if first else "      | ") + _cut(line, 160)
        for number, line in enumerate(text[:_SHOWN_LINES])
    ]
    return "\n".join([*shown, *(["      | ..."] if len(text) > _SHOWN_LINES else [])])


def _cut(line: str, chars: int) -> str:
    return line if len(line) <= chars else line[: chars - 3] + "..."
