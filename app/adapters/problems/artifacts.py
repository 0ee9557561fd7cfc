"""Artifacts: texts from an evaluation, made safe to store, to show and to put into a prompt."""

import re
from collections.abc import Mapping

from app.domain.secrets import redacted

MAX_ARTIFACTS = 64
MAX_TOTAL_CHARS = 262_144
MAX_NAME_CHARS = 100
OUTPUT_CHARS = 4_096

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def clean(text: str) -> str:
    """Returns text that any database, terminal and JSON document takes: no escapes, no NUL."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ANSI.sub("", text.replace("\r\n", "\n")))


def clipped(text: str, chars: int) -> str:
    """Returns the head and the tail of a text that is too long, and says what is missing."""
    if len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def bounded(texts: Mapping[str, str], *, chars: int, redact: bool) -> dict[str, str]:
    """Returns artifacts within bounds: 64 of them, `chars` each, 262,144 characters in all.

    Those that do not fit are left out, and an artifact `left_out` names them.
    """
    kept: dict[str, str] = {}
    left_out: list[str] = []
    room = MAX_TOTAL_CHARS
    for raw, text in texts.items():
        name = clean(raw)[:MAX_NAME_CHARS]
        shown = clean(clipped(text, 4 * chars + OUTPUT_CHARS))  # a search need not see it all
        shown = clipped(redacted(shown) if redact else shown, chars)
        if not shown:
            continue
        if len(kept) == MAX_ARTIFACTS or len(shown) > room:
            left_out.append(name)
            continue
        kept[name] = shown
        room -= len(shown)
    if left_out:
        kept["left_out"] = clipped(", ".join(left_out), OUTPUT_CHARS)
    return kept
