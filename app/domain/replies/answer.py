"""Answers: what a completion says once reasoning and the marks of chat formats are taken off."""

import re
from dataclasses import dataclass

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Completion

WITHHELD = frozenset(("content_filter", "refusal"))
"""Finish reasons of an endpoint that keeps its answer back."""

_NAMES = r"(?:think|thinking|thought|thoughts|reasoning|seed:think)"
_OPEN = rf"(?:<{_NAMES}>|\[THINK\]|◁think▷)"
_CLOSED = rf"(?:</{_NAMES}>|\[/THINK\]|◁/think▷)"
_OPENING = re.compile(rf"^[ \t]*{_OPEN}", re.MULTILINE)
_CLOSING = re.compile(_CLOSED)
_FENCE_MARK = re.compile(r"^[ \t]*+(?:`{3}|~{3})", re.MULTILINE)
_ENDED_THOUGHT = re.compile(rf"\A.*(?:^[ \t]*{_CLOSED}|{_CLOSED}[ \t]*$)", re.DOTALL | re.MULTILINE)
_FINAL = re.compile(r"\A.*<\|channel\|>final(?:<\|constrain\|>\w+)?<\|message\|>", re.DOTALL)
_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end|>", "<|return|>", "<|end_of_text|>"),
    "</s>",
)

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
_LONGEST_REFUSAL = 1_500  # a refusal is short; a long text without code is something else


def answer(reply: Completion) -> str | Failure:
    """Returns the reply's text without reasoning, with plain line ends; or why there is none."""
    if reply.finish in WITHHELD:
        return Failure(FailureKind.REFUSED, f"The endpoint withheld the reply: {reply.finish}.")
    text = without_thoughts(reply.text.replace("\r\n", "\n").replace("\r", "\n"))
    if text.strip():
        return text
    if not reply.text.strip():
        return no_code(reply, "The reply is empty.")
    return no_code(reply, "The reply holds nothing but reasoning.")


def without_thoughts(text: str) -> str:
    """Returns a reply without its reasoning, which some endpoints leave in the text.

    A thought whose start was part of the prompt ends with a tag alone; one that never ends takes
    the rest of the reply with it.  A pair of tags inside a fence is the program's: prompts that
    evolve are full of them.  Of a reply with channels the final one counts, and marks that end a
    turn are taken off.
    """
    parts = _said(_FINAL.sub("", text))
    for at, part in reversed(list(enumerate(parts))):
        ended = None if part.fenced else _ENDED_THOUGHT.match(part.text)
        if ended is not None:
            parts = [_Part(part.text[ended.end() :]), *parts[at + 1 :]]
            break
    return _without_ends("".join(part.text for part in parts))


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of what a reply says; `fenced` where it is a pair of tags in a fence."""

    text: str
    fenced: bool = False


def _said(text: str) -> list[_Part]:
    """Returns a text without its thoughts that have a start; read once, whatever their number."""
    parts: list[_Part] = []
    at, marks = 0, 0
    for opening in _OPENING.finditer(text):
        if opening.start() < at:
            continue
        parts.append(_Part(text[at : opening.start()]))
        marks += len(_FENCE_MARK.findall(parts[-1].text))
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            return parts
        at = closing.end()
        thought = text[opening.start() : at]
        if marks % 2 and not _FENCE_MARK.search(thought):
            parts.append(_Part(thought, fenced=True))
    return [*parts, _Part(text[at:])]


def _without_ends(text: str) -> str:
    """Returns a text with a line end in the place of marks that end a turn, if it has any.

    Step by step from the end: a pattern that is tried at every character takes the square of a long
    run of white space, which is what models write that have lost their way.
    """
    end, marked = _filled(text, len(text)), False
    while text.endswith(_ENDS, 0, end):
        mark = next(one for one in _ENDS if text.endswith(one, 0, end))
        end, marked = _filled(text, end - len(mark)), True
    return text[:end] + "\n" if marked else text


def _filled(text: str, end: int) -> int:
    """Returns where the white space before `end` begins."""
    while end and text[end - 1].isspace():
        end -= 1
    return end


def no_code(reply: Completion, detail: str) -> Failure:
    """Returns why a reply without a program is none: refused, cut off, or simply without one."""
    text = without_thoughts(reply.text).strip()
    if declines(text):
        return Failure(FailureKind.REFUSED, f"The model declined: {text.splitlines()[0][:200]}")
    if reply.finish == "length":
        return cut_off(FailureKind.NO_CODE, detail)
    return Failure(FailureKind.NO_CODE, detail)


def declines(text: str) -> bool:
    """Says whether a text without a program begins by declining to help, in English."""
    return len(text) <= _LONGEST_REFUSAL and _REFUSAL.match(text) is not None


def cut_off(kind: FailureKind, detail: str) -> Failure:
    """Returns the failure of a reply that ended at its token limit."""
    return Failure(kind, f"The reply was cut off at its token limit. {detail}")
