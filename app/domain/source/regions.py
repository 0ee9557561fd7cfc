"""EVOLVE-BLOCK regions: which lines of a program a search may change.

A marker line is a run of non-word characters followed by `EVOLVE-BLOCK-START` or
`EVOLVE-BLOCK-END`, so that the comment sign of every language works; or a line that contains the
exact text `# EVOLVE-BLOCK-START` or `# EVOLVE-BLOCK-END`.

Source: OpenEvolve 0.4.0's marker rules.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.evaluation import Failure, FailureKind

MARKER = "EVOLVE-BLOCK"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_STARTS = re.compile(r"\W*EVOLVE-BLOCK-START\b|.*# EVOLVE-BLOCK-START")
_ENDS = re.compile(r"\W*EVOLVE-BLOCK-END\b|.*# EVOLVE-BLOCK-END")


@dataclass(frozen=True, slots=True)
class Block:
    """The lines between two markers: indices `first` (included) to `end` (excluded), from 0."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Regions:
    """A source text's blocks, in order.

    Attributes:
      blocks: Empty where there are no markers or they are not well-formed.
      fault: The first error in the markers, with its line; "" where there is none.
    """

    blocks: tuple[Block, ...]
    fault: str = ""

    def holds(self, line: int) -> bool:
        """Returns whether a line, from 0, may change; without blocks every line may."""
        return not self.blocks or any(block.first <= line < block.end for block in self.blocks)


def lines(source: str) -> list[str]:
    """Returns the lines with their ends, split where Python's parser splits them.

    `str.splitlines` splits at form feeds and Unicode separators too, which would put positions
    from a syntax tree on the wrong line.
    """
    return _LINE.findall(source)


def parse(source: str) -> Regions:
    """Returns the blocks of a source text, or the fault of its markers."""
    blocks: list[Block] = []
    start: int | None = None
    for number, line in enumerate(lines(source)):
        if MARKER not in line:
            continue
        if _STARTS.match(line):
            if start is not None:
                return Regions(
                    (), f"line {number + 1}: a block starts inside the one of line {start}"
                )
            start = number + 1
        elif _ENDS.match(line):
            if start is None:
                return Regions((), f"line {number + 1}: a block ends that never started")
            blocks.append(Block(start, number))
            start = None
    if start is not None:
        return Regions((), f"line {start}: a block starts that never ends")
    return Regions(tuple(blocks))


def bodies(source: str) -> tuple[str, ...]:
    """Returns the text of each block, or the whole text where there is no block."""
    regions, text = parse(source), lines(source)
    if not regions.blocks:
        return (source,)
    return tuple("".join(text[block.first : block.end]) for block in regions.blocks)


def enforce(parent: str, child: str) -> str | Failure:
    """Inserts the bodies of the child's blocks into the parent's text outside its blocks.

    A parent without blocks, or with malformed markers, restricts nothing.  If the parent has one
    block and the child has no markers but equals the parent above and below them, the markers are
    inserted again.

    Returns:
      The child with the parent's text outside its blocks; or BAD_EDIT where the blocks do not
      correspond, or where every change lies outside them.
    """
    outer = parse(parent)
    if not outer.blocks:
        return child
    inner = parse(child)
    if inner.fault:
        return Failure(
            FailureKind.BAD_EDIT, f"The EVOLVE-BLOCK markers are damaged: {inner.fault}."
        )
    fillings = bodies(child) if inner.blocks else _unmarked(parent, outer.blocks, child)
    if len(fillings) != len(outer.blocks):
        return Failure(
            FailureKind.BAD_EDIT,
            f"The program has {len(outer.blocks)} EVOLVE-BLOCK region(s) and the reply"
            f" {len(inner.blocks)}; keep every marker line where it is.",
        )
    merged = _transplant(lines(parent), outer.blocks, fillings)
    if merged == parent and child != parent:
        return Failure(
            FailureKind.BAD_EDIT,
            "Every change lies outside the EVOLVE-BLOCK regions, where nothing may change.",
        )
    return merged


def _unmarked(parent: str, blocks: Sequence[Block], child: str) -> tuple[str, ...]:
    """Returns the text of a child without markers in the place of its parent's one block, or ()."""
    if len(blocks) != 1:
        return ()
    text = lines(parent)
    above, below = "".join(text[: blocks[0].first - 1]), "".join(text[blocks[0].end + 1 :])
    if len(child) < len(above) + len(below) or not (above or below):
        return ()
    if not (child.startswith(above) and child.endswith(below)):
        return ()
    filling = child[len(above) : len(child) - len(below)]
    return (filling,) if not filling or filling.endswith("\n") else ()


def _transplant(text: Sequence[str], blocks: Sequence[Block], fillings: Sequence[str]) -> str:
    parts: list[str] = []
    at = 0
    for block, filling in zip(blocks, fillings, strict=True):
        parts += [*text[at : block.first], filling]
        at = block.end
    return "".join([*parts, *text[at:]])
