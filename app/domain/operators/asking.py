"""Asking a model once a draft, and again for the replies that came to nothing."""

from collections.abc import Callable, Sequence
from functools import partial

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Brief, Child, Completion, Conversation, Draft, Prompt
from app.domain.prompting.prompts import repair_prompt
from app.domain.prompting.rules import PromptRules
from app.domain.replies.interpretation import Tell
from app.domain.source.differences import summary

REPAIRED = frozenset(
    (FailureKind.NO_CODE, FailureKind.BAD_EDIT, FailureKind.SYNTAX, FailureKind.TOO_LONG)
)
"""Failures of replies that meant a change.

A refusal, and a reply that changes nothing, are answers; one that was cut off at its token limit
would be cut off again.
"""

Read = Callable[[Completion, Draft], Child]
"""Makes a child of a reply."""


def asked(brief: Brief, prompts: Sequence[Prompt], read: Read) -> Conversation:
    """Yields one prompt a draft, then as many turns of repair as the brief allows."""
    replies = list((yield list(prompts)))
    children = [read(reply, draft) for reply, draft in zip(replies, brief.drafts, strict=True)]
    for _ in range(brief.repair_turns):
        again: list[Prompt] = []
        places: list[int] = []
        for place, child in enumerate(children):
            if not isinstance(child, Failure) or not _repairable(child, replies[place]):
                continue
            repair = repair_prompt(brief, prompts[place], replies[place], child)
            if repair is not None:
                again.append(repair)
                places.append(place)
        if not again:
            break
        for place, reply in zip(places, (yield again), strict=True):
            replies[place] = reply
            children[place] = read(reply, brief.drafts[place])
    return children


def teller(rules: PromptRules) -> Tell:
    """Returns how edits are put into prose by these rules."""
    return partial(
        summary,
        max_lines=rules.diff_summary_max_lines,
        max_line_chars=rules.diff_summary_max_line_len,
    )


def _repairable(failure: Failure, reply: Completion) -> bool:
    return failure.kind in REPAIRED and reply.finish != "length"
