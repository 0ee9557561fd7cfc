"""Edits: replacements of whole lines, applied to a text, found between two texts, summarised."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from app.domain.evaluation import Failure, FailureKind
from app.domain.source.regions import parse

FUZZY_RATIO = 0.92
"""Least likeness of a passage to the search that means it: one letter in twelve may differ."""
FUZZY_MARGIN = 0.05
"""How much less alike every other passage must be; with a closer rival the search is ambiguous."""
MAX_LINES = 30
MAX_LINE_CHARS = 100
"""Default bounds of edits in prose."""
_FUZZY_PAIRS = 10_000_000
"""Most pairs of characters that one search compares, about a second's work; beyond, it fails."""
_FUZZY_CHARS = 40
"""Fewest characters of a fuzzy search; `a + b` and `a - b` are too easily alike."""
_SHOWN_LINES, _SHOWN_CHARS = 12, 160
_COMPARED_LINES = 4
"""Lines of a search without a match that are compared: enough to name a near passage, and quick."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement of whole lines; `replace` is empty for a deletion."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Lines `first` (included) to `end` (excluded) of a text.

    Attributes:
      indent: White space to put before each line of the replacement; after a "-", to take off it.
    """

    first: int
    end: int
    indent: str = ""


def apply_edits(
    source: str, edits: Sequence[Edit], *, certain: bool = False, inside: bool = False
) -> str | Failure:
    """Returns the source with every edit applied in order, each to the result of the edit before.

    A search is compared exactly (the first match counts, see `inside`), then without white space at
    line ends, then at another depth of indentation, then by likeness.  All but the exact comparison
    must match at one place only.  If one edit does not apply, none does: half a change is rarely
    useful.

    Args:
      source: The text to edit.
      edits: In the order in which they apply.
      certain: Whether each search must match exactly and at one place only.
      inside: Whether a match in an EVOLVE-BLOCK region goes before exact matches elsewhere.
    """
    newline = "\r\n" if "\r\n" in source else "\n"
    text = source.replace("\r\n", "\n").split("\n")
    for number, edit in enumerate(edits, 1):
        place = _certain(text, edit.search) if certain else _find(text, edit.search, inside=inside)
        if isinstance(place, str):
            return Failure(
                FailureKind.BAD_EDIT,
                f"Block {number} of {len(edits)} {place}\nIts SEARCH section:\n"
                + _numbered(edit.search, 0),
            )
        text[place.first : place.end] = _shifted(edit.replace, place.indent)
    return newline.join(text)


def _exact(text: list[str], search: tuple[str, ...]) -> list[_Place]:
    size = len(search)
    return [
        _Place(first, first + size)
        for first in range(len(text) - size + 1)
        if tuple(text[first : first + size]) == search
    ]


def _certain(text: list[str], search: tuple[str, ...]) -> _Place | str:
    places = _exact(text, search)
    return (
        places[0] if len(places) == 1 else f"matches exactly at {len(places)} places, not at one."
    )


def _first(text: list[str], places: list[_Place], *, inside: bool) -> _Place:
    """Returns the first place; with `inside`, the first that overlaps a region, if one does."""
    blocks = parse("\n".join(text)).blocks if inside and len(places) > 1 else ()
    within = (p for p in places if any(p.first < b.end and b.first < p.end for b in blocks))
    return next(within, places[0])


def _find(text: list[str], search: tuple[str, ...], *, inside: bool) -> _Place | str:
    """Returns the one place that the search matches, or why there is none."""
    exact = _exact(text, search)
    if exact:
        return _first(text, exact, inside=inside)
    size, span = len(search), range(len(text) - len(search) + 1)
    wanted = [line.rstrip() for line in search]
    bare = [line.rstrip() for line in text]
    places = [_Place(at, at + size) for at in span if bare[at : at + size] == wanted]
    places = places or [
        _Place(at, at + size, shift)
        for at in span
        if (shift := _indentation(bare[at : at + size], wanted)) is not None
    ]
    places = places or _alike(bare, wanted)
    if len(places) == 1:
        return places[0]
    if places:
        lines = ", ".join(str(place.first + 1) for place in places[:8])
        return f"matches at {len(places)} places, none exactly (lines {lines}): quote more lines."
    return f"matches nowhere. {_nearest(bare, wanted)}"


def _indentation(text: list[str], wanted: list[str]) -> str | None:
    """Returns the indentation that turns `wanted` into `text`; None where no single one does."""
    have, want = text[0], wanted[0]
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
    """Returns the likest passage, followed by every rival that makes it ambiguous.

    A rival lies elsewhere and is hardly less alike, or overlaps the likest and is exactly as alike.
    An upper bound of the likeness rules out most passages: they are compared from the highest bound
    down, and below the best ratio only those that lie elsewhere.  [] where that takes too long.
    """
    likeness = _Likeness(wanted)
    if likeness.chars < _FUZZY_CHARS:
        return []
    scored: list[tuple[float, _Place]] = []
    best = _Scored(0.0, _Place(0, 0))
    for bound, place in _bounded(text, wanted, likeness):
        if bound < best.ratio and (_overlap(place, best.place) or bound < best.rival_ratio):
            continue
        ratio = likeness.of(text[place.first : place.end])
        if likeness.pairs > _FUZZY_PAIRS:
            return []
        scored.append((ratio, place))
        if ratio > best.ratio:
            best = _Scored(ratio, place)
    if best.ratio < FUZZY_RATIO:
        return []
    places = [best.place]
    for ratio, other in sorted(scored, key=lambda pair: -pair[0]):
        apart = not any(_overlap(other, place) for place in places)
        if other != best.place and ((apart and ratio >= best.rival_ratio) or ratio == best.ratio):
            places.append(other)
    return places


@dataclass(frozen=True, slots=True)
class _Scored:
    ratio: float
    place: _Place

    @property
    def rival_ratio(self) -> float:
        """The least likeness of a passage elsewhere that is a rival."""
        return self.ratio - FUZZY_MARGIN


def _overlap(a: _Place, b: _Place) -> bool:
    return a.first < b.end and b.first < a.end


def _bounded(
    text: list[str], wanted: list[str], likeness: "_Likeness"
) -> list[tuple[float, _Place]]:
    """Returns the passages that may match or rival, with their bounds, the highest first."""
    least = FUZZY_RATIO - FUZZY_MARGIN
    bounded: list[tuple[float, _Place]] = []
    for size in {len(wanted), len(wanted) - 1, len(wanted) + 1} - {0}:
        for first in range(len(text) - size + 1):
            if not text[first] or not text[first + size - 1]:
                # A passage with blank lines at its ends is the same as a smaller passage.
                continue
            bound = likeness.bound(text[first : first + size], least)
            if bound >= least:
                bounded.append((bound, _Place(first, first + size, _lead(text[first], wanted[0]))))
    return sorted(bounded, key=lambda pair: -pair[0])


def _lead(have: str, want: str) -> str:
    deep = len(have) - len(have.lstrip()) - (len(want) - len(want.lstrip()))
    return have[:deep] if deep >= 0 else "-" + want[:-deep]


class _Likeness:
    """Compares passages with one search, indentation aside.

    Attributes:
      chars: Length of the search.
      pairs: Pairs of characters compared so far; a measure of time.
    """

    def __init__(self, wanted: list[str]) -> None:
        self._wanted = _stripped(wanted)
        self.chars = len(self._wanted)
        self.pairs = 0
        self._matcher = SequenceMatcher(None, "", self._wanted, autojunk=False)

    def bound(self, passage: list[str], least: float) -> float:
        """Returns an upper bound of the ratio, or 0 as soon as it is certain to be below `least`.

        Source: `difflib`'s quick ratio, from the letters that both texts contain.
        """
        self._matcher.set_seq1(_stripped(passage))
        if self._matcher.real_quick_ratio() < least:
            return 0.0
        bound = self._matcher.quick_ratio()
        return bound if bound >= least else 0.0

    def of(self, passage: list[str]) -> float:
        """Returns a ratio from 0 to 1; equal beginnings and ends are not compared in detail."""
        have, want = _stripped(passage), self._wanted
        head = _equal_head(have, want)
        tail = _equal_head(have[head:][::-1], want[head:][::-1])
        inner, sought = have[head : len(have) - tail], want[head : len(want) - tail]
        self.pairs += len(inner) * len(sought)
        if self.pairs > _FUZZY_PAIRS:
            return 0.0
        blocks = SequenceMatcher(None, inner, sought, autojunk=False).get_matching_blocks()
        equal = head + tail + sum(block.size for block in blocks)
        return 2.0 * equal / (len(have) + len(want)) if have or want else 1.0


def _equal_head(a: str, b: str) -> int:
    """Returns the length of the common beginning of two texts."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((at for at, (x, y) in pairs if x != y), min(len(a), len(b)))


def _stripped(passage: list[str]) -> str:
    return "\n".join(line.strip() for line in passage)


def _nearest(text: list[str], wanted: list[str]) -> str:
    """Returns text that shows the likest passage, so that the next reply can quote it."""
    size = min(len(wanted), len(text))
    compared = min(size, _COMPARED_LINES)
    likeness, best, at = _Likeness(wanted[:compared]), 0.4, -1
    for first in range(len(text) - size + 1):
        passage = text[first : first + compared]
        if likeness.bound(passage, best) > best and (ratio := likeness.of(passage)) > best:
            best, at = ratio, first
    if at < 0:
        return "Nothing in the program resembles it."
    return f"The nearest lines of the program:\n{_numbered(text[at : at + size], at + 1)}"


def _numbered(text: Sequence[str], first: int) -> str:
    """Returns bounded lines, numbered from `first`; without numbers where `first` is 0."""
    shown = [
        (f"{first + number:5d} | " if first else "      | ") + line[:_SHOWN_CHARS]
        for number, line in enumerate(text[:_SHOWN_LINES])
    ]
    return "\n".join([*shown, *(["      | ..."] if len(text) > _SHOWN_LINES else [])])


def edits_between(before: str, after: str) -> list[Edit]:
    """Returns edits that, applied in order to `before`, make `after`; [] where they are equal.

    Each search includes as many lines above its change as make its place the first match.  Both
    texts have the same line ends.
    """
    old, new = _text_lines(before), _text_lines(after)
    running = list(old)
    edits: list[Edit] = []
    shift = 0
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, end, new_first, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        place, size = first + shift, end - first
        edit, above = _pointed(running, place, size, new[new_first:new_end])
        edits.append(edit)
        running[place - above : place - above + len(edit.search)] = edit.replace
        shift += (new_end - new_first) - size
    return edits


def _pointed(running: list[str], place: int, size: int, by: list[str]) -> tuple[Edit, int]:
    """Returns the edit of `size` lines at `place`, and how many lines above them it quotes."""
    # An insertion at the very beginning quotes the next line.
    below = 0 if size or place else 1
    above = 0 if size or below else 1
    while True:
        search = running[place - above : place + size + below]
        if place == above or _first_place(running, search) == place - above:
            kept, after = running[place - above : place], running[place + size :][:below]
            return Edit(tuple(search), (*kept, *by, *after)), above
        above += 1


def _first_place(text: list[str], search: list[str]) -> int:
    size = len(search)
    return next(at for at in range(len(text)) if text[at : at + size] == search)


def _text_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def summary(
    edits: Sequence[Edit], *, max_lines: int = MAX_LINES, max_line_chars: int = MAX_LINE_CHARS
) -> str:
    """Returns the edits in prose: one-line changes on a line each, others as bounded blocks.

    Source: OpenEvolve 0.4.0's `metadata.changes`.
    """

    def bounded(section: tuple[str, ...]) -> str:
        rows = [_clipped(line, max_line_chars) for line in section[:max_lines]]
        more = [f"... ({len(section) - max_lines} more lines)"] if len(section) > max_lines else []
        return "\n".join(f"  {line}" for line in [*rows, *more])

    parts = []
    for number, edit in enumerate(edits, 1):
        if len(edit.search) == 1 and len(edit.replace) == 1:
            before = _clipped(edit.search[0].strip(), max_line_chars)
            after = _clipped(edit.replace[0].strip(), max_line_chars)
            parts.append(f"Change {number}: '{before}' to '{after}'")
        elif not edit.replace:
            parts.append(f"Change {number}: Delete:\n{bounded(edit.search)}")
        else:
            parts.append(
                f"Change {number}: Replace:\n{bounded(edit.search)}\nwith:\n{bounded(edit.replace)}"
            )
    return "\n".join(parts)


def _clipped(line: str, chars: int) -> str:
    """Returns a line of at most `chars` characters; dots replace the end of a longer line."""
    return line if len(line) <= chars else line[: max(chars - 3, 0)] + "..."
