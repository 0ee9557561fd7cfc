"""Second thoughts: which passages of a reply its author withdraws, marks as an example, or elides.

Only words in English are known.  They decide between passages that could all be the answer; a
single passage is the answer whatever stands beside it.
"""

import re

_SHORT = 600
"""Characters of the text beside a passage that are read, from the passage on."""
_WITHDRAWAL = re.compile(
    r"""(?:\A|[.!?:]\s|\n)[\W_]*+(?:(?:oh|hmm+|ah|ok(?:ay)?|but|however|actually)\W+)?
        (?:(?:no|nope|wait|oops|hold\ on|on\ second\ thoughts?|scratch\ that|never\ ?mind
            |correction|i\ made\ a\ mistake)\b\s*(?:[,.!:;\u2026\u2013\u2014-]|\Z|\n)
        |(?:that|this|it|the\ (?:above|first|previous|last)(?:\ \w+){0,3})
            (?:['\u2019]s|\ is|\ was|\ would\ be|\ will\ be)\ (?:\w+\ )?
            (?:not\b|wrong|too\b|broken|incorrect|worse|slower|a\ (?:bug|mistake)|buggy|invalid)
        |(?:that|this|it)\ (?:(?:wo|would|does|ca)n['\u2019]?t|will\ not|does\ not|cannot
            |has\ a\ (?:bug|mistake)|fails|crashes|breaks)\b
        |(?:please\ )?(?:ignore|discard|disregard|forget|scrap)\ (?:that|this|it|the)\b
        |[\w' ]{0,40}\b(?:keep|stick\ with|stay\ with|go\ with|prefer|use)\ the
            \ (?:first|previous|earlier|former)\b
        |(?:here\ is\ )?(?:the\ |a\ |my\ )?(?:corrected|fixed|revised)\b[^.\n]{0,60}:?\s*\Z)""",
    re.IGNORECASE | re.VERBOSE,
)
_ADDITION = re.compile(
    r"\b(?:also|additionally|as well|another|forgot|missed|missing|next|then)\b", re.IGNORECASE
)
_ANSWER = re.compile(
    r"\b(?:improved|new|final|corrected|fixed|updated|revised|rewritten|complete|completed|full"
    r"|whole|entire|better|after|modified|optimi[sz]ed|answer|solution|proposed)\b",
    re.IGNORECASE,
)
_EXAMPLE_AT_ONCE = re.compile(
    r"[\W_]*+(?:an? |the |some |simple |quick |sample |short )*"
    r"(?:examples?\b|usage|use it|used? (?:as|like)|unit tests?|tests?\b|testing"
    r"|(?:expected )?outputs?\b"
    r"|prints?\b|results?\b|(?:to|how to) (?:test|try|use|run|call|verify|check)\b|before\b|old\b"
    r"|original\b|previously|your (?:code|program|version)\b)",
    re.IGNORECASE,
)
_EXAMPLE = re.compile(
    r"\b(?:usage|for example|for instance|for reference|for comparison|e\.g\.|example"
    r"|how to (?:use|run|call|test)|to (?:test|try|run|call|verify) (?:it|this)"
    r"|(?:you can|you could|could be) (?:test|run|use|used|call|called|try|verify)|outputs?|prints"
    r"|original|before|old|previous|current|existing|initial|baseline|parent"
    r"|first (?:attempt|thought|version|try|draft|idea))\b",
    re.IGNORECASE,
)
_HEADING = re.compile(r"[ \t]*(?:#{1,6} |\*\*|__).*")
_SENTENCE_END = re.compile(r"[.!?]\s+")
_COMMENT = re.compile(r"[ \t]*(?:#|//|--|/\*|;|%)[ \t]*(?P<words>\S.*)")
_COMMENT_WORDS = 6
_ELISION = re.compile(
    r"^[ \t]*(?:(?:#|//|--|/\*|;|%)[ \t]*)?(?:\.{3}|\u2026)"
    r"|^[ \t]*(?:#|//|--|/\*|;|%)[ \t]*\(?(?:the )?"
    r"(?:rest|remaining|existing|other|same|previous)\b"
    r"[^\n]{0,60}\b(?:code|functions?|unchanged|same|before|here|above|program|implementation)\b",
    re.MULTILINE | re.IGNORECASE,
)


def withdraws(below: str) -> bool:
    """Returns whether the text after a passage withdraws the passage."""
    return _WITHDRAWAL.search(below[:_SHORT]) is not None


def starts_anew(between: str) -> bool:
    """Returns whether the text between two edits withdraws the first, and adds nothing to it."""
    return withdraws(between) and _ADDITION.search(between[:_SHORT]) is None


def is_example(above: str, passage: str) -> bool:
    """Returns whether a passage is marked as something else than the answer.

    Such are an example of use, a test, output, and the program before the change.  The mark is the
    sentence above the passage, else the heading above it, else a short comment that begins it.
    """
    lines = [line for line in above[-_SHORT:].split("\n") if line.strip()]
    marks = [_SENTENCE_END.split(lines[-1].strip())[-1]] if lines else []
    marks += [line for line in reversed(lines) if _HEADING.fullmatch(line)][:1]
    comment = _COMMENT.match(passage.split("\n", 1)[0])
    if comment is not None and len(comment["words"].split()) <= _COMMENT_WORDS:
        marks.append(comment["words"])
    for mark in marks:
        if _EXAMPLE_AT_ONCE.match(mark):
            return True
        if _ANSWER.search(mark):
            return False
        if _EXAMPLE.search(mark):
            return True
    return False


def elides(passage: str, parent: str) -> bool:
    """Returns whether dots or a remark stand in a passage for lines that it leaves out."""
    return _ELISION.search(passage) is not None and _ELISION.search(parent) is None
