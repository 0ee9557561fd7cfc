"""Differences: the edits that lead from one text to another, and edits in prose."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from app.domain.source.edits import Edit

MAX_LINES = 30
MAX_LINE_CHARS = 100


def edits_between(before: str, after: str) -> list[Edit]:
    """Returns edits that, applied in order to `before`, make `after`; [] where they are equal.

    Each search takes in as many lines above its change as it needs to point at its place: the first
    one where it is found.  Both texts have the same line ends.
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
    """Returns the edit of `size` lines at `place`, and how many lines above it quotes."""
    below = 0 if size or place else 1  # an insertion before everything quotes what comes after it
    above = 0 if size or below else 1
    while True:
        search = running[place - above : place + size + below]
        if place == above or _first(running, search) == place - above:
            kept, after = running[place - above : place], running[place + size :][:below]
            return Edit(tuple(search), (*kept, *by, *after)), above
        above += 1


def _first(text: list[str], search: list[str]) -> int:
    size = len(search)
    return next(at for at in range(len(text)) if text[at : at + size] == search)


def _text_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def summary(
    edits: Sequence[Edit], *, max_lines: int = MAX_LINES, max_line_chars: int = MAX_LINE_CHARS
) -> str:
    """Returns the edits in prose: one-line changes in a line each, others as bounded blocks.

    Source: OpenEvolve 0.4.0's `metadata.changes`.
    """

    def bounded(section: tuple[str, ...]) -> str:
        kept = [cut(line, max_line_chars) for line in section[:max_lines]]
        more = [f"... ({len(section) - max_lines} more lines)"] if len(section) > max_lines else []
        return "\n".join(f"  {line}" for line in [*kept, *more])

    parts = []
    for number, edit in enumerate(edits, 1):
        if len(edit.search) == 1 and len(edit.replace) == 1:
            before = cut(edit.search[0].strip(), max_line_chars)
            after = cut(edit.replace[0].strip(), max_line_chars)
            parts.append(f"Change {number}: '{before}' to '{after}'")
        elif not edit.replace:
            parts.append(f"Change {number}: Delete:\n{bounded(edit.search)}")
        else:
            parts.append(
                f"Change {number}: Replace:\n{bounded(edit.search)}\nwith:\n{bounded(edit.replace)}"
            )
    return "\n".join(parts)


def cut(line: str, chars: int) -> str:
    """Returns a line of at most so many characters, its end replaced by dots."""
    return line if len(line) <= chars else line[: max(chars - 3, 0)] + "..."
