"""Edits of whole lines, applied to a program all or none, at one place or at none."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from app.domain.evaluation import Failure, FailureKind
from app.domain.source.regions import parse

FUZZY_RATIO = 0.92
"""Likeness from which a passage is taken for the one meant: one letter in twelve may differ."""
FUZZY_MARGIN = 0.05
"""How much less alike every other passage must be: nearer rivals make the search ambiguous."""
_FUZZY_PAIRS = 10_000_000
"""Pairs of characters that one search may be compared over: a second's work; then it is refused."""
_FUZZY_CHARS = 40  # shorter searches are too easily alike: `a + b` and `a - b` differ in one letter
_SHOWN_LINES, _SHOWN_CHARS = 12, 160
_COMPARED_LINES = 4  # of a search found nowhere: enough to point at something, and quick


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


def apply_edits(
    source: str, edits: Sequence[Edit], *, certain: bool = False, inside: bool = False
) -> str | Failure:
    """Returns the source with every edit applied in order, each to the result of the one before.

    A search is looked for exactly (the first place counts, see `inside`), then without regard to
    white space at line ends, then to the depth of indentation, then by likeness.  All but the exact
    search must point at one place only.  One edit that does not apply refuses them all: half a
    change is rarely what was meant.

    Args:
      source: What is edited.
      edits: In the order in which they apply.
      certain: Whether a search must be found exactly, and once: nothing is tolerated.
      inside: Whether an exact search that is found in EVOLVE-BLOCK regions and elsewhere means the
        regions.
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
    found = _exact(text, search)
    return found[0] if len(found) == 1 else f"matches exactly at {len(found)} places, not at one."


def _first(text: list[str], places: list[_Place], *, inside: bool) -> _Place:
    """Returns the first place; `inside`: the first with a line in a region, where there is one."""
    blocks = parse("\n".join(text)).blocks if inside and len(places) > 1 else ()
    within = (one for one in places if any(one.first < b.end and b.first < one.end for b in blocks))
    return next(within, places[0])


def _find(text: list[str], search: tuple[str, ...], *, inside: bool) -> _Place | str:
    """Returns where the search points, or why it points at no one place."""
    exact = _exact(text, search)
    if exact:
        return _first(text, exact, inside=inside)
    size, span = len(search), range(len(text) - len(search) + 1)
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
    """Returns the likest passage, and with it every rival that makes it uncertain.

    A rival lies elsewhere and is hardly less alike, or overlaps and is exactly as alike.  Of most
    passages a bound of the likeness says enough: they are compared from the highest bound down, and
    below the best found only those that lie elsewhere.  [] where that takes too long.
    """
    likeness = _Likeness(wanted)
    if likeness.chars < _FUZZY_CHARS:
        return []
    scored: list[tuple[float, _Place]] = []
    best = _Scored(0.0, _Place(0, 0))
    for bound, place in _bounded(text, wanted, likeness):
        if bound < best.ratio and (_overlap(place, best.place) or bound < best.rivalled):
            continue
        ratio = likeness.of(text[place.first : place.end])
        if likeness.pairs > _FUZZY_PAIRS:
            return []
        scored.append((ratio, place))
        if ratio > best.ratio:
            best = _Scored(ratio, place)
    if best.ratio < FUZZY_RATIO:
        return []
    found = [best.place]
    for ratio, other in sorted(scored, key=lambda pair: -pair[0]):
        apart = not any(_overlap(other, one) for one in found)
        if other != best.place and ((apart and ratio >= best.rivalled) or ratio == best.ratio):
            found.append(other)
    return found


@dataclass(frozen=True, slots=True)
class _Scored:
    ratio: float
    place: _Place

    @property
    def rivalled(self) -> float:
        """The likeness from which a passage elsewhere is a rival."""
        return self.ratio - FUZZY_MARGIN


def _overlap(one: _Place, other: _Place) -> bool:
    return one.first < other.end and other.first < one.end


def _bounded(
    text: list[str], wanted: list[str], likeness: "_Likeness"
) -> list[tuple[float, _Place]]:
    """Returns the passages that may count or rival, that with the highest bound first."""
    least = FUZZY_RATIO - FUZZY_MARGIN
    bounded: list[tuple[float, _Place]] = []
    for size in {len(wanted), len(wanted) - 1, len(wanted) + 1} - {0}:
        for first in range(len(text) - size + 1):
            if not text[first] or not text[first + size - 1]:
                continue  # a passage with blank lines at its ends is a smaller passage
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
      pairs: Of characters, over which passages have been compared; a measure of time.
    """

    def __init__(self, wanted: list[str]) -> None:
        self._wanted = _stripped(wanted)
        self.chars = len(self._wanted)
        self.pairs = 0
        self._matcher = SequenceMatcher(None, "", self._wanted, autojunk=False)

    def bound(self, passage: list[str], least: float) -> float:
        """Returns what the ratio cannot exceed, or 0 as soon as it is certain to be under `least`.

        Source: `difflib`'s quick ratio, by the letters that both have.
        """
        self._matcher.set_seq1(_stripped(passage))
        if self._matcher.real_quick_ratio() < least:
            return 0.0
        bound = self._matcher.quick_ratio()
        return bound if bound >= least else 0.0

    def of(self, passage: list[str]) -> float:
        """Returns a ratio from 0 to 1; what is equal at both ends is not compared."""
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


def _equal_head(one: str, other: str) -> int:
    """Returns how many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _stripped(passage: list[str]) -> str:
    return "\n".join(line.strip() for line in passage)


def _nearest(text: list[str], wanted: list[str]) -> str:
    """Says which passage is likest, so that a next reply can quote it."""
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
    """Returns bounded lines, numbered from `first`, or unnumbered where that is 0."""
    shown = [
        (f"{first + number:5d} | " if first else "      | ") + line[:_SHOWN_CHARS]
        for number, line in enumerate(text[:_SHOWN_LINES])
    ]
    return "\n".join([*shown, *(["      | ..."] if len(text) > _SHOWN_LINES else [])])
