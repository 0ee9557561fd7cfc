"""Tokens, estimated: what a text costs a model to read, without any model's vocabulary.

A tokenizer's vocabulary is megabytes that differ by model and must be fetched. What vocabularies of
code models have in common is how they cut a text up first: words with the space before them, up to
three digits, punctuation one by one, white space in runs. So the pieces are counted and each kind
is given the share of a token it takes on average.

Measured against cl100k, o200k, DeepSeek's and Anthropic's published vocabularies: single Python
files 0.96 to 1.20 of the true number, English documents 0.92 to 1.10, lists of numbers 0.93 to
1.40. `docs/prompts.md` has the table.
"""

import math
import re

_PIECE = re.compile(
    r"(?P<word>[^\W\d_]+)|(?P<digits>\d{1,3})|(?P<break>\n+)|(?P<gap>[ \t]{2,})"
    r"|(?P<space> (?=\d))|(?P<underscore>_+)|(?P<mark>[^\w\s])"
)
_WORD_CHARS = 8  # a word up to this long is one token
_PART_CHARS = 6  # of a longer one
_TOKENS_PER_BYTE = 0.45  # of letters outside ASCII
_SHARES = {
    "digits": 1.0, "space": 1.0, "break": 0.7, "gap": 0.6, "underscore": 0.5, "mark": 0.8
}  # fmt: skip


def estimated(text: str) -> int:
    """Returns about how many tokens a text is; never more than it has bytes."""
    total = 0.0
    for match in _PIECE.finditer(text):
        kind = match.lastgroup or ""
        total += _of_word(match.group()) if kind == "word" else _SHARES[kind]
    return math.ceil(total)


def fits(text: str, tokens: int) -> bool:
    """Says whether a text is within so many tokens, by the estimate; short texts need none."""
    return len(text.encode("utf-8", "replace")) <= tokens or estimated(text) <= tokens


def _of_word(word: str) -> float:
    if not word.isascii():
        return len(word.encode("utf-8", "replace")) * _TOKENS_PER_BYTE
    return 1.0 if len(word) <= _WORD_CHARS else math.ceil(len(word) / _PART_CHARS)
