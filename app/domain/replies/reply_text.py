"""Reply texts: completions without reasoning and marks of chat formats, and refusals."""

import re
from dataclasses import dataclass

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import TOO_LONG, Completion

WITHHELD = frozenset(("content_filter", "refusal"))
"""Finish reasons of an endpoint that withholds the completion."""

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
_LONGEST_REFUSAL = 1_500  # a refusal is short; a longer text without code is something else


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


def without_thoughts(text: str) -> str:
    """Returns a reply without its reasoning, which some endpoints leave in the text.

    Where the prompt contains the opening tag, the reply has only the closing tag.  A thought
    without a closing tag extends to the end of the reply.  A pair of tags inside a fence belongs to
    the program: evolving prompts often contain such tags.  In a reply with channels only the final
    channel counts.  Marks that end a turn are removed.
    """
    parts = _without_tagged_thoughts(_FINAL.sub("", text))
    for n, part in reversed(list(enumerate(parts))):
        ended = None if part.fenced else _ENDED_THOUGHT.match(part.text)
        if ended is not None:
            parts = [_Part(part.text[ended.end() :]), *parts[n + 1 :]]
            break
    return _without_ends("".join(part.text for part in parts))


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a reply outside its reasoning; `fenced` for a pair of tags in a fence."""

    text: str
    fenced: bool = False


def _without_tagged_thoughts(text: str) -> list[_Part]:
    """Returns the pieces of a text outside thoughts with an opening tag, in one pass."""
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

    The text is read from its end: the time of a regular expression would grow with the square of a
    long run of white space, which a degenerate completion contains.
    """
    end, marked = _end_of_words(text, len(text)), False
    while text.endswith(_ENDS, 0, end):
        mark = next(mark for mark in _ENDS if text.endswith(mark, 0, end))
        end, marked = _end_of_words(text, end - len(mark)), True
    return text[:end] + "\n" if marked else text


def _end_of_words(text: str, end: int) -> int:
    """Returns where the white space before `end` begins."""
    while end and text[end - 1].isspace():
        end -= 1
    return end


def no_code(reply: Completion, detail: str) -> Failure:
    """Returns the failure of a reply without a program: refused, cut off, or no code."""
    text = without_thoughts(reply.text).strip()
    if declines(text):
        return Failure(FailureKind.REFUSED, f"The model declined: {text.splitlines()[0][:200]}")
    if reply.finish == "length":
        return cut_off(FailureKind.NO_CODE, detail)
    return Failure(FailureKind.NO_CODE, detail)


def declines(text: str) -> bool:
    """Returns whether a text without a program begins with a refusal in English."""
    return len(text) <= _LONGEST_REFUSAL and _REFUSAL.match(text) is not None


def cut_off(kind: FailureKind, detail: str) -> Failure:
    """Returns the failure of a reply that ended at its token limit."""
    return Failure(kind, f"The reply was cut off at its token limit. {detail}")
