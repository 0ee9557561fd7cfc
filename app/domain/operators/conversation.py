"""Conversations with a model: one prompt for each draft, and repair turns for unusable replies."""

from collections.abc import Callable, Sequence
from functools import partial

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import TOO_LONG, Brief, Child, Completion, Conversation, Draft, Prompt
from app.domain.prompting.prompts import repair_prompt
from app.domain.prompting.rules import PromptRules
from app.domain.replies.children import Describe
from app.domain.source.edits import summary

REPAIRED = frozenset(
    (FailureKind.NO_CODE, FailureKind.BAD_EDIT, FailureKind.SYNTAX, FailureKind.TOO_LONG)
)
"""Failures of replies that a repair turn may mend.

A refusal and a reply that changes nothing are valid replies; a reply that was cut off at its token
limit would be cut off again.
"""

ReadReply = Callable[[Completion, Draft], Child]
"""Returns the child that a reply makes of a draft's parent, or its failure."""


def with_repairs(brief: Brief, prompts: Sequence[Prompt], read: ReadReply) -> Conversation:
    """Yields one prompt for each draft, then as many repair turns as the brief allows."""
    replies = list((yield list(prompts)))
    children = [read(reply, draft) for reply, draft in zip(replies, brief.drafts, strict=True)]
    for _ in range(brief.repair_turns):
        repairs: dict[int, Prompt] = {}
        for n, child in enumerate(children):
            if isinstance(child, Failure) and _repairable(child, replies[n]):
                repair = repair_prompt(brief, prompts[n], replies[n], child)
                if repair is not None:
                    repairs[n] = repair
        if not repairs:
            break
        for n, reply in zip(repairs, (yield list(repairs.values())), strict=True):
            replies[n] = reply
            children[n] = read(reply, brief.drafts[n])
    return children


def describer(rules: PromptRules) -> Describe:
    """Returns the description of edits in prose within the bounds of these rules."""
    return partial(
        summary,
        max_lines=rules.diff_summary_max_lines,
        max_line_chars=rules.diff_summary_max_line_len,
    )


def _repairable(failure: Failure, reply: Completion) -> bool:
    return failure.kind in REPAIRED and reply.finish not in ("length", TOO_LONG)
