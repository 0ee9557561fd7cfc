"""Reply texts: completions without their reasoning, and refusals."""

import re

from app.domain.evaluation import BEGINS, Failure, FailureKind
from app.domain.operator import TOO_LONG, Completion
from app.domain.replies.reasoning import without_thoughts

WITHHELD = frozenset(("content_filter", "refusal"))
"""Finish reasons of an endpoint that withholds the completion."""

_REFUSAL = re.compile(
    r"""\W*(?:(?:i['’]?m|i\ am)\ (?:(?:really|very|so|truly)\ )?sorry|sorry|i\ apologi[sz]e
        |my\ apologies|unfortunately|as\ an?\ (?:ai|(?:large\ )?language\ model)\b[^.\n]{0,60})?
        \W*(?:but\W+)?(?:i\W+)?
        (?:(?:must\ (?:respectfully\ )?decline|refuse\ to|(?:am|['’]?m)\ not\ comfortable)\b
        |(?:can(?:no|['’])t|can\ not|could\ not|(?:won['’]t|will\ not)(?:\ be\ able\ to)?
        |(?:am|['’]?m)\ (?:not\ able|unable)\ to)
        \W+(?:in\ good\ conscience\W+|\w+\W+)?
        (?:help|assist|comply|fulfil|fulfill|provide|create|generate|write|answer|respond|engage
        |do\ (?:this|that))\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_BEGINNING = 120
"""Characters of a reply without code that its failure quotes."""
_LONGEST_REFUSAL = 1_500
"""Most characters of a refusal; a longer text without code is something else."""


def reply_text(reply: Completion) -> str | Failure:
    """Returns a reply's text without reasoning, with Unix line ends; or why there is none."""
    if reply.finish == TOO_LONG:
        return Failure(FailureKind.TOO_LONG, f"The prompt is too long: {reply.text}")
    if reply.finish in WITHHELD:
        return Failure(FailureKind.REFUSED, f"The endpoint withheld the reply: {reply.finish}.")
    text = without_thoughts(reply.text.replace("\r\n", "\n").replace("\r", "\n"))
    if text.strip():
        return text
    if not reply.text.strip():
        return no_code(reply, "The reply is empty.")
    return no_code(reply, "The reply holds nothing but reasoning.")


def no_code(reply: Completion, detail: str) -> Failure:
    """Returns the failure of a reply without a program: refused, cut off, or no code."""
    text = without_thoughts(reply.text).strip()
    if declines(text):
        return Failure(FailureKind.REFUSED, f"The model declined: {text.splitlines()[0][:200]}")
    if reply.finish == "length":
        return cut_off(FailureKind.NO_CODE, detail)
    begins = " ".join(text[:_BEGINNING].split())
    return Failure(FailureKind.NO_CODE, f"{detail}\n{BEGINS}{begins}" if begins else detail)


def declines(text: str) -> bool:
    """Returns whether a text without a program begins with a refusal in English."""
    return len(text) <= _LONGEST_REFUSAL and _REFUSAL.match(text) is not None


def cut_off(kind: FailureKind, detail: str) -> Failure:
    """Returns the failure of a reply that ended at its token limit."""
    return Failure(kind, f"The reply was cut off at its token limit. {detail}")
