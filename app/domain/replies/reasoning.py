"""Reasoning: the passages of a reply in which a model thinks, which are no answer."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NAMES = frozenset({
    "think", "thinking", "thought", "thoughts", "reasoning", "reason", "seed:think", "mm:think",
    "longcat_think", "antthinking", "ant_thinking", "scratchpad", "scratch_pad", "reflection",
    "reflections", "self_reflection", "analysis", "cot", "chain_of_thought", "inner_monologue",
    "monologue", "deliberation",
})  # fmt: skip
"""Names of tags between which a model thinks, wherever in the reply they stand."""
_NOTES = frozenset({
    "plan", "planning", "rationale", "brainstorm", "brainstorming", "notes", "critique",
    "self_critique", "review", "verification", "explanation", "justification", "observations",
    "hypothesis",
})  # fmt: skip
"""Names of tags between which a model writes about its answer, before it or after it."""
_ANSWERS = frozenset({
    "answer", "answers", "final", "final_answer", "solution", "response", "reply", "result",
    "output", "code", "program", "python", "function", "implementation", "source", "content",
    "artifact", "file", "files", "edit", "edits", "change", "changes", "patch", "diff", "block",
    "blocks", "search", "replace", "replacement", "find", "old", "new", "before", "after",
    "original", "updated", "improved", "details", "summary", "pre", "div", "p", "html", "svg",
    "xml",
})  # fmt: skip
"""Names of tags that may contain the answer."""
_FINAL_ANSWERS = frozenset({"answer", "final_answer", "final", "solution", "response"})
"""Names of tags that end a thought which is not closed."""
_TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[a-z][\w:.-]{0,40})(?:[ \t][^<>\n]{0,200})?>"
    r"|<\|(?P<end_a>/?)(?P<name_a>think|thinking|thought)\|>"
    r"|\[(?P<end_b>/?)(?P<name_b>[a-z][a-z_]{2,40})\]"
    r"|◁(?P<end_c>/?)(?P<name_c>\w{2,40})▷"
    r"|<\|(?P<end_d>begin|start|end)_(?:of_)?(?P<name_d>thought|thoughts|thinking|reasoning)\|>",
    re.IGNORECASE,
)
_FENCE_MARK = re.compile(r"^[ \t]*+(?:`{3}|~{3})", re.MULTILINE)
_ANSWER_MARK = re.compile(r"^[ \t]*+(?:`{3}|~{3}|<{5,9} ?SEARCH|-{5,9} ?SEARCH)", re.MULTILINE)
_FINAL = re.compile(
    r"\A.*<\|channel\|>final(?:<\|constrain\|>\w+)?<\|message\|>"
    r"|\A\s*+analysis(?=[A-Z]).*assistantfinal",
    re.DOTALL,
)
_CHANNEL = re.compile(
    r"<\|channel\|>(?:analysis|commentary)\b.*?(?:<\|end\|>|(?=<\|start\|>|<\|channel\|>)|\Z)"
    r"|<\|channel>thought\b.*?(?:<channel\|>|\Z)"
    r"|<unused94>.*?(?:<unused95>|\Z)",
    re.DOTALL,
)
_START = re.compile(r"<\|start\|>\w*")
_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end|>", "<|return|>", "<|end_of_text|>"),
    "</s>",
)


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag at characters `first` (included) to `end` (excluded) of a text."""

    name: str
    closing: bool
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a reply outside its reasoning; `fenced` for a pair of tags in a fence."""

    text: str
    fenced: bool = False


def without_thoughts(text: str) -> str:
    """Returns a reply without its reasoning, which some endpoints leave in the text.

    Where the prompt contains the opening tag, the reply has only the closing tag.  A thought
    without a closing tag extends to a tag that begins the answer, else to the end of the reply.  A
    pair of tags inside a fence belongs to the program: evolving prompts often contain such tags.  A
    passage between tags of an unknown name is reasoning if a fence or an edit block follows it.  In
    a reply with channels only the final channel counts.  Marks that end a turn are removed.
    """
    parts = _without_tagged_thoughts(_without_channels(text))
    for n, part in reversed(list(enumerate(parts))):
        ended = None if part.fenced else _last_closing(part.text)
        if ended is not None:
            parts = [_Part(part.text[ended:]), *parts[n + 1 :]]
            break
    return _without_ends(_without_tagged_notes("".join(part.text for part in parts)))


def _without_channels(text: str) -> str:
    final = _FINAL.match(text)
    if final is not None:
        return text[final.end() :]
    without = _CHANNEL.sub("", text)
    return _START.sub("", without) if without != text else text


def _tags(text: str) -> Iterator[_Tag]:
    """Returns the tags of a text in order, with their names in lower case."""
    for match in _TAG.finditer(text):
        kinds = ("", "_a", "_b", "_c", "_d")
        kind = next(kind for kind in kinds if match["name" + kind])
        closing = match["end" + kind].lower() in ("/", "end")
        yield _Tag(match["name" + kind].lower(), closing, match.start(), match.end())


def _opens_line(text: str, tag: _Tag) -> bool:
    start = text.rfind("\n", max(0, tag.first - 80), tag.first) + 1 if tag.first else 0
    return not text[start : tag.first].strip()


def _closes_line(text: str, tag: _Tag) -> bool:
    return text[tag.end : tag.end + 80].lstrip(" \t")[:1] in ("", "\n")


def _without_tagged_thoughts(text: str) -> list[_Part]:
    """Returns the pieces of a text outside thoughts with an opening tag, in one pass."""
    all_tags = list(_tags(text))
    tags = [tag for tag in all_tags if tag.name in _NAMES]
    answers = [
        tag.end
        for tag in all_tags
        if tag.name in _FINAL_ANSWERS and not tag.closing and _opens_line(text, tag)
    ]
    closings = [tag for tag in tags if tag.closing]
    by_name = _ends_by_name(closings)
    firsts = [tag.first for tag in closings]
    parts: list[_Part] = []
    at, marks = 0, 0
    for opening in tags:
        if opening.closing or opening.first < at or not _opens_line(text, opening):
            continue
        parts.append(_Part(text[at : opening.first]))
        marks += len(_FENCE_MARK.findall(parts[-1].text))
        end = _end_after(by_name, opening)
        if end is None:
            later = bisect_left(firsts, opening.end)
            if later == len(closings):
                begun = [at for at in answers if at > opening.first]
                return [*parts, _Part(text[begun[0] :])] if begun else parts
            end = closings[later].end
        at = end
        thought = text[opening.first : at]
        if marks % 2 and not _FENCE_MARK.search(thought):
            parts.append(_Part(thought, fenced=True))
    return [*parts, _Part(text[at:])]


def _last_closing(text: str) -> int | None:
    """Returns where the last tag ends that closes a thought at an end of its line."""
    ended: int | None = None
    for tag in _tags(text):
        ends = tag.closing and (_opens_line(text, tag) or _closes_line(text, tag))
        if ends and tag.name in _NAMES:
            ended = tag.end
    return ended


def _without_tagged_notes(text: str) -> str:
    """Returns a text without notes, and without passages of unknown tags before the answer."""
    answers = [match.start() for match in _ANSWER_MARK.finditer(text)]
    if not answers:
        return text
    marks = [match.start() for match in _FENCE_MARK.finditer(text)]
    tags = [tag for tag in _tags(text) if tag.name not in _ANSWERS]
    ends = _ends_by_name([tag for tag in tags if tag.closing])
    times = Counter(tag.name for tag in tags if not tag.closing)
    parts: list[str] = []
    at = 0
    for tag in tags:
        in_fence = bisect_left(marks, tag.first) % 2
        if tag.first < at or in_fence or not _opens_line(text, tag):
            continue
        end = tag.end if tag.closing and not times[tag.name] else _end_after(ends, tag)
        if end is None or times[tag.name] > 1:
            continue
        if answers[-1] < end and not (tag.name in _NOTES and answers[0] < tag.first):
            continue
        if not tag.closing:
            parts.append(text[at : tag.first])
        at = end
    return "".join([*parts, text[at:]])


def _ends_by_name(closings: list[_Tag]) -> Mapping[str, list[int]]:
    ends: dict[str, list[int]] = {}
    for tag in closings:
        ends.setdefault(tag.name, []).append(tag.end)
    return ends


def _end_after(ends: Mapping[str, list[int]], opening: _Tag) -> int | None:
    """Returns where the next tag ends that closes an opening tag; None without one."""
    candidates = ends.get(opening.name, [])
    later = bisect_left(candidates, opening.end)
    return candidates[later] if later < len(candidates) else None


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
