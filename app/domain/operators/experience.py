"""How edits and places fared in earlier children of a lineage, so that fewer children crash.

A place is the text of a line of the parent and the function around it; an edit is known by its verb
in the note of a change.  A child with several of them counts for each in part.  The counts come
from the bounded reads of a brief, so nothing is stored for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from app.domain.operator import Brief, Reads
from app.domain.operators.tree_edits import Change
from app.domain.program import Program
from app.domain.source.syntax import FUNCTION_NODES, SHARED, top_level

EXPERIENCE = Reads(siblings=16, ancestors=2, failures=32)
"""The facts from which an experience is made; siblings are children that succeeded."""
_DRAWS = 10
_BENEFIT = 1.0
"""Successes that each is credited with before there are any."""
_CAUTION = 3.0
"""How fast a change is made less often as children with it fail."""
_VERBS = (
    *("becomes", "change places", "gains", "splits where", "deleted", "duplicated", "loses"),
    "exchanged",
)


@dataclass(frozen=True, slots=True)
class Experience:
    """How often each edit, each place and each function succeeded and failed."""

    succeeded: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, float] = field(default_factory=dict)

    @property
    def poor(self) -> bool:
        """Whether failed children are more than half as many as the others."""
        return 2.0 * sum(self.failed.values()) > sum(self.succeeded.values())

    @property
    def draws(self) -> int:
        """How many changes are drawn for one that is made."""
        return _DRAWS if self.failed else 1

    def choose(self, text: str, changes: Sequence[Change], rng: Random) -> Change | None:
        """Draws one of several changes of a text, by how such changes fared; None for none."""
        if not changes or not self.failed:
            return changes[0] if changes else None
        [chosen] = rng.choices(changes, [self._trust(text, change) for change in changes])
        return chosen

    def _trust(self, text: str, change: Change) -> float:
        """Returns the weight of a change: 1.0 where nothing speaks against it."""
        lines = text.splitlines()
        place = lines[change.line - 1].strip() if 0 < change.line <= len(lines) else ""
        share = 1.0
        for key in (*_places([place], Program(text)), *_edits(change.note)):
            good = _BENEFIT + self.succeeded.get(key, 0.0)
            share *= (good / (good + self.failed.get(key, 0.0))) ** _CAUTION
        return share


def experience(brief: Brief, parent: Program) -> Experience:
    """Returns what the siblings and the failed children of a parent's lineage tell."""
    bases = [parent, *(record.program for record in brief.ancestry.ancestors)]
    succeeded: dict[str, float] = {}
    failed: dict[str, float] = {}
    for sibling in brief.siblings:
        _count(succeeded, bases, sibling.program, sibling.changes)
    for child in brief.ancestry.failures:
        if child.program is not None:
            _count(failed, bases, child.program, child.changes)
    return Experience(succeeded, failed)


def _count(
    counts: dict[str, float], bases: Sequence[Program], child: Program, changes: str
) -> None:
    """Counts the edits of a child, and the lines that it lacks of the program nearest to it."""
    kept = _lines(child)
    base = min(bases, key=lambda one: len(_lines(one) - kept))
    lacking = sorted(_lines(base) - kept)
    for line in lacking:
        for key in _places([line], base):
            counts[key] = counts.get(key, 0.0) + 1.0 / len(lacking)
    edits = _edits(changes)
    for key in edits:
        counts[key] = counts.get(key, 0.0) + 1.0 / len(edits)


def _lines(program: Program) -> frozenset[str]:
    return frozenset(line.strip() for line in program.source.splitlines())


def _places(lines: Sequence[str], program: Program) -> list[str]:
    """Returns the keys of lines, and of the functions in which they stand."""
    functions = _functions(program.source)
    keys = [f"line {line}" for line in lines]
    return keys + [f"function {functions[line]}" for line in lines if line in functions]


@lru_cache(maxsize=SHARED)
def _functions(text: str) -> Mapping[str, str]:
    """Returns the line of a text, without white space around it, to its outermost function."""
    lines = text.splitlines()
    return {
        lines[number].strip(): node.name
        for node in top_level(text)
        if isinstance(node, FUNCTION_NODES)
        for number in range(node.lineno - 1, node.end_lineno or node.lineno)
    }


def _edits(changes: str) -> list[str]:
    """Returns the verbs of the notes of a child."""
    return [f"edit {verb}" for note in changes.split("; line") for verb in _VERBS if verb in note]
