"""The operator `directed`: a strategist gives a cohort directions, and a model follows each.

One conversation makes the children of a cohort: the strategist is asked once for as many directions
as the cohort has proposals, the generator writes a program for each, and an adversary's critique is
answered by a fix.  Strategist and adversary are asked where the run's settings name their roles;
without a strategist, and for what its reply lacks, the directions are those of a packaged list.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

from app.domain.evaluation import Failure
from app.domain.operator import (
    Brief,
    Child,
    Completion,
    Conversation,
    Direction,
    Draft,
    Offspring,
    Operator,
    Prompt,
    Role,
)
from app.domain.operators.conversation import describer, with_repairs
from app.domain.operators.rewrite import REWRITE
from app.domain.prompting.directions import TRIED, packaged, read_directions
from app.domain.prompting.prompts import (
    critique_prompt,
    directed_prompt,
    fix_prompt,
    strategist_prompt,
)
from app.domain.replies.children import read_rewritten, with_changes
from app.domain.replies.reply_text import reply_text

_CRITIQUE_CHARS = 4_000
"""Most characters of a critique that the prompt for the fix quotes."""
_NO_FAULT = "no fault"


def converse(brief: Brief) -> Conversation:
    """Asks for directions, then for a child in each; a critique may follow, and its fix."""
    directions = yield from _directions(brief)
    describe = describer(brief.prompts)

    def read(reply: Completion, draft: Draft) -> Child:
        return read_rewritten(reply, brief.parent(draft).program, brief.edit, describe)

    prompts = [
        directed_prompt(brief, draft, direction)
        for draft, direction in zip(brief.drafts, directions, strict=True)
    ]
    children = yield from with_repairs(brief, prompts, read)
    if Role.ADVERSARY in brief.roles:
        children = yield from _reviewed(brief, directions, children)
    return children


def _directions(
    brief: Brief,
) -> Generator[list[Prompt], list[Completion], list[Direction]]:
    """Returns a direction for each draft."""
    given: list[Direction] = []
    if Role.STRATEGIST in brief.roles:
        [reply] = yield [strategist_prompt(brief)]
        given = read_directions(reply, len(brief.drafts))
    return given + [packaged(draft.ordinal) for draft in brief.drafts[len(given) :]]


def _reviewed(
    brief: Brief, directions: Sequence[Direction], children: Sequence[Child]
) -> Conversation:
    """Returns the children after critique and fix; one that cannot be mended stays as it is."""
    made = {n: child.program for n, child in enumerate(children) if isinstance(child, Offspring)}
    critiques = yield [
        critique_prompt(brief, brief.drafts[n], program, directions[n])
        for n, program in made.items()
    ]
    found = {n: _faults(critique) for n, critique in zip(made, critiques, strict=True)}
    fixed = [n for n in made if found[n]]
    replies = yield [
        fix_prompt(brief, brief.drafts[n], made[n], directions[n], found[n]) for n in fixed
    ]
    describe, reviewed = describer(brief.prompts), list(children)
    for n, reply in zip(fixed, replies, strict=True):
        child = read_rewritten(reply, made[n], brief.edit, describe)
        if isinstance(child, Offspring):
            parent = brief.parent(brief.drafts[n]).program
            reviewed[n] = with_changes(child, parent, describe, "Full rewrite, fixed")
    return reviewed


def _faults(critique: Completion) -> str:
    """Returns what a critique finds wrong; "" where it finds nothing, or says nothing."""
    text = reply_text(critique)
    if isinstance(text, Failure) or text.strip(" \n*.").lower().startswith(_NO_FAULT):
        return ""
    return text.strip()[:_CRITIQUE_CHARS]


DIRECTED = Operator(
    "directed",
    converse,
    reads=replace(REWRITE.reads, directions=TRIED),
    advisers={Role.STRATEGIST: 1, Role.ADVERSARY: 2},
    repairs=True,
    together=True,
)
