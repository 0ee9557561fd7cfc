"""Directions: what children are to try, as a strategist says or as a packaged list does."""

import re
from collections.abc import Sequence

from app.domain.finite import difference
from app.domain.operator import TOO_LONG, Completion, Direction, TriedDirection
from app.domain.replies.reasoning import without_thoughts

TRIED = 20
"""Directions that a strategist is shown, newest first."""
_CHARS = 600
"""Longest text of one direction, in characters."""
_NUMBERED = re.compile(r"^[ \t#]*\d{1,2}[.):][ \t]+", re.MULTILINE)
_BULLETED = re.compile(r"^[ \t]*[-*•][ \t]+", re.MULTILINE)
_CATEGORY = re.compile(r"\[?((?:[\w-]+ ){0,2}[\w-]+)(?:\]:?|:) ")

PACKAGED: Sequence[Direction] = tuple(
    Direction(category, text)
    for category, text in (
        ("algorithm", "Replace the method at the core by another one from the literature."),
        ("simplify", "Remove what does not earn its place, until only what raises it remains."),
        ("constants", "Find the numbers that matter most, and choose other values for them."),
        ("lookahead", "Let each decision consider what it leaves for the decisions after it."),
        ("local search", "Improve a finished answer by small changes for as long as they help."),
        ("ordering", "Handle the parts in another order: hardest first, largest first, by need."),
        ("special cases", "Find inputs that are handled badly, and handle them on their own."),
        ("combination", "Join two methods: one for the beginning, another for the end."),
        ("scoring", "Judge the choices by another formula, not linear in what it looks at."),
        ("new evidence", "Use something that the program can know and does not look at yet."),
        ("speed", "Make it much faster, and spend the time that this frees on a deeper search."),
        ("adaptation", "Let the behaviour depend on what was seen so far in the same input."),
        ("ties", "Decide between choices that look equally good by a second criterion."),
        ("relaxation", "Solve an easier version of the problem first, then repair its answer."),
        ("decomposition", "Divide the problem into parts, solve each, and join the answers."),
        ("symmetry", "Use that some inputs or choices are equivalent, and look at one of each."),
        ("bounds", "Compute what is at best possible, and give up early what cannot reach it."),
        ("memory", "Remember results that are needed again, in the form in which they are needed."),
        ("randomness", "Try several seeded random variants of an answer, and keep the best."),
        ("thresholds", "Behave differently below and above a limit where one rule serves both."),
        ("opposite", "Do the opposite of a choice that the program takes for granted."),
        ("robustness", "Make it good on its worst inputs, even at a small cost on the others."),
        ("representation", "Describe the state in other terms, in which good choices are simple."),
    )
)
"""Directions that suit most problems.  Their number is a prime, so that islands and generations
whose ordinals have a common step meet all of them."""


def packaged(ordinal: int) -> Direction:
    """Returns the direction of the packaged list for a proposal; consecutive ones differ."""
    return PACKAGED[ordinal % len(PACKAGED)]


def read_directions(reply: Completion, most: int) -> list[Direction]:
    """Returns the directions of a strategist's reply, each once, in order; [] where it has none.

    The reply is a list, numbered or with bullets.  An item may begin with a category and a colon.
    """
    if reply.finish == TOO_LONG:
        return []
    text = without_thoughts(reply.text).replace("**", "")
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    found: dict[str, Direction] = {}
    for item in _NUMBERED.split(text)[1:] or _BULLETED.split(text)[1:]:
        words = " ".join(item.split("\n\n")[0].split())
        category = _CATEGORY.match(words)
        said = words[category.end() :] if category else words
        if said:
            named = category.group(1).lower() if category else ""
            found.setdefault(said.lower(), Direction(named, said[:_CHARS], reply.model))
    return list(found.values())[:most]


def tried_text(tried: Sequence[TriedDirection]) -> str:
    """Returns directions with their outcome, one a line; "" where there are none."""
    return "".join(f"- {shown(each.direction)} → {_outcome(each)}\n" for each in tried)


def shown(direction: Direction) -> str:
    """Returns a direction as prompts show it."""
    return f"{direction.category}: {direction.text}" if direction.category else direction.text


def _outcome(tried: TriedDirection) -> str:
    if tried.failure is not None:
        return f"failed: {tried.failure.value}"
    if tried.fitness is None:
        return "not measured"
    if tried.parent_fitness is None:
        return f"fitness {tried.fitness:.6g}"
    gain = difference(tried.fitness, tried.parent_fitness)
    return f"fitness {tried.fitness:.6g}, {gain:+.3g} to its parent"
