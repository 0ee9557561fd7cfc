"""Conversations with a model: one prompt for each draft, and repair turns for faulty replies."""

from collections.abc import Callable, Sequence
from functools import partial

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import (
    TOO_LONG,
    Brief,
    Child,
    Completion,
    Conversation,
    Draft,
    Offspring,
    Prompt,
)
from app.domain.program import fingerprint
from app.domain.prompting.prompts import again_prompt, repair_prompt
from app.domain.prompting.rules import PromptRules
from app.domain.replies.children import Describe
from app.domain.source.certain_faults import new_faults
from app.domain.source.edits import summary

REPAIRED = frozenset(
    (
        FailureKind.NO_CODE,
        FailureKind.BAD_EDIT,
        FailureKind.SYNTAX,
        FailureKind.TOO_LONG,
        FailureKind.UNCHANGED,
    )
)
"""Failures of replies that a repair turn may mend.

A refusal is a valid reply; a reply that was cut off at its token limit would be cut off again.
"""

ReadReply = Callable[[Completion, Draft], Child]
"""Returns the child that a reply makes of a draft's parent, or its failure."""


def with_repairs(brief: Brief, prompts: Sequence[Prompt], read: ReadReply) -> Conversation:
    """Yields one prompt for each draft, then as many repair turns as the brief allows.

    A child that is certain to fail in the sandbox, or that the run has already, is
    repaired, too; it stays where no usable reply takes its place.
    """
    replies = list((yield list(prompts)))
    children = [read(reply, draft) for reply, draft in zip(replies, brief.drafts, strict=True)]
    for _ in range(brief.repair_turns):
        repairs: dict[int, Prompt] = {}
        taken = set(brief.taken)
        for n, child in enumerate(children):
            failure = _repairable(child, replies[n], brief, brief.drafts[n], taken)
            if failure is not None:
                repair = _repair(brief, prompts[n], replies[n], failure)
                if repair is not None:
                    repairs[n] = repair
        if not repairs:
            break
        for n, reply in zip(repairs, (yield list(repairs.values())), strict=True):
            child = read(reply, brief.drafts[n])
            if isinstance(children[n], Offspring) and isinstance(child, Failure):
                continue
            replies[n], children[n] = reply, child
    return children


def _repair(brief: Brief, first: Prompt, reply: Completion, failure: Failure) -> Prompt | None:
    if failure.kind is FailureKind.UNCHANGED:
        return again_prompt(brief, first)
    return repair_prompt(brief, first, reply, failure)


def describer(rules: PromptRules) -> Describe:
    """Returns the description of edits in prose within the bounds of these rules."""
    return partial(
        summary,
        max_lines=rules.diff_summary_max_lines,
        max_line_chars=rules.diff_summary_max_line_len,
    )


def _repairable(
    child: Child, reply: Completion, brief: Brief, draft: Draft, taken: set[str]
) -> Failure | None:
    """Returns what a repair turn may mend of a child; None where there is nothing.

    Args:
      child: The child.
      reply: The reply that made it.
      brief: The brief of its cohort.
      draft: Its own.
      taken: Fingerprints of the run's programs; that of the child is added.
    """
    if isinstance(child, Failure):
        whole = reply.finish not in ("length", TOO_LONG)
        return child if child.kind in REPAIRED and whole else None
    digest = fingerprint(child.program)
    if digest in taken:
        return Failure(FailureKind.UNCHANGED, "The run has this program already.")
    taken.add(digest)
    parent = brief.parent(draft).program
    if child.program.language != "python":
        return None
    faults = new_faults(child.program.source, parent.source)
    text = "\n".join(["It would fail when it runs:", *map(str, faults)])
    return Failure(FailureKind.RUNTIME, text) if faults else None
