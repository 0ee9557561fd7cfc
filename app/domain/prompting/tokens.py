"""Tokens: an estimate of a text's length in tokens, without the vocabulary of a model.

A tokenizer's vocabulary is a download of megabytes for each model.  The tokenizers of code models
agree on how they first split a text: words with the space before them, up to three digits,
punctuation one by one, white space in runs.  So the estimate counts these pieces, and weighs each
kind by its average share of a token.

Measured against cl100k, o200k, DeepSeek's and Anthropic's published vocabularies: single Python
files 0.96 to 1.20 of the true number, English documents 0.92 to 1.10, lists of numbers 0.93 to
1.40. `docs/prompts.md` has the table.
"""

import functools
import re

_PIECE = re.compile(
    r"(?P<word>[^\W\d_]+)|(?P<digits>\d{1,3})|(?P<break>\n+)|(?P<gap>[ \t]{2,})"
    r"|(?P<space> (?=\d))|(?P<underscore>_+)|(?P<mark>[^\w\s])"
)
_WORD_CHARS = 8
"""Longest word that is one token, in letters."""
_PART_CHARS = 6
"""Letters of a longer word that make one token."""
# Shares of a token, in hundredths: whole numbers give one sum in any order.
_PER_BYTE = 45
"""Share of each byte of a word with letters outside ASCII."""
_SHARES = {"digits": 100, "space": 100, "break": 70, "gap": 60, "underscore": 50, "mark": 80}
_LINE = re.compile(r"[^\n]+|\n+")
_LINE_CHARS = 200
"""Longest line whose count is remembered, in characters."""
_COUNTED_SHARE = 0.95
"""Of the room that a model's own count gives a prompt; the text that is cut may be denser."""
_UNCOUNTED_SHARE = 0.8
"""Of the room, where only the estimate counts the prompt: its error, and a chat format's tokens."""
_UNKNOWN_SHARE = 2 / 3
"""Of a prompt that was refused without a number."""


def estimated(text: str) -> int:
    """Returns an estimate of a text's tokens; never more than its bytes."""
    # No piece spans the end of a line, and most lines of a prompt were in the prompt before it.
    total = 0
    for line in _LINE.findall(text):
        total += _remembered(line) if len(line) <= _LINE_CHARS else _hundredths(line)
    return -(-total // 100)


def fits(text: str, tokens: int) -> bool:
    """Returns whether a text has at most `tokens` tokens by the estimate."""
    # A text has no more tokens than bytes, so that a short one needs no estimate.
    return len(text.encode("utf-8", "replace")) <= tokens or estimated(text) <= tokens


def shortened(estimate: int, room: int | None, counted: int | None) -> int:
    """Returns how many tokens, as estimated, a prompt may have in place of one that was refused.

    Args:
      estimate: Tokens of the refused prompt, as estimated.
      room: Tokens that a prompt may have by its model's count; None where that is not known.
      counted: Tokens that the model counted in the refused prompt; None where it does not say.

    Returns:
      0 or more, and less than `estimate` if that is more than 0.
    """
    if room is None:
        fitting = estimate * _UNKNOWN_SHARE
    elif counted:
        fitting = room * estimate / counted * _COUNTED_SHARE
    else:
        fitting = room * _UNCOUNTED_SHARE
        fitting = fitting if fitting < estimate else estimate * _UNKNOWN_SHARE
    return max(0, min(int(fitting), estimate - 1))


def _hundredths(line: str) -> int:
    total = 0
    for match in _PIECE.finditer(line):
        kind = match.lastgroup or ""
        total += _of_word(match.group()) if kind == "word" else _SHARES[kind]
    return total


_remembered = functools.lru_cache(maxsize=16_384)(_hundredths)


def _of_word(word: str) -> int:
    if not word.isascii():
        return len(word.encode("utf-8", "replace")) * _PER_BYTE
    return 100 if len(word) <= _WORD_CHARS else 100 * -(-len(word) // _PART_CHARS)
