"""Text that a model or a program wrote, as HTML that shows it and does nothing else."""

import html
import re
import unicodedata
from collections.abc import Callable

from app.domain.finite import difference

SHOWN = 200_000
"""Characters that a page shows of a text; the rest is read by `/api`."""
_HIDDEN = re.compile(
    r"[^\S\n\t ]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)
"""What changes how the rest looks or is not seen: control characters, marks that turn the direction
of text, spaces without width, line separators."""


def shown(text: str) -> str:
    """Returns the text with every character that would not be seen in a visible form."""
    if len(text) > SHOWN:
        text = f"{text[:SHOWN]}\n… {len(text) - SHOWN:,} more characters"
    return _HIDDEN.sub(lambda found: _visible(found.group()), text.replace("\r\n", "\n"))


def _visible(character: str) -> str:
    if unicodedata.category(character) == "Cc":
        return f"\\x{ord(character):02x}"
    return f"\\u{ord(character):04x}"


def as_html(text: str) -> str:
    """Returns HTML that shows the text as it is."""
    return html.escape(shown(text))


def counted(count: int, one: str, many: str = "") -> str:
    """Returns a number of things; `many` is their plural where it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def gain(fitness: float | None, before: float | None) -> str:
    """Returns how much a fitness is above another one; "" where one of them is not known."""
    if fitness is None or before is None:
        return ""
    return f"{difference(fitness, before):+.4g}"


def diff_html(diff: str) -> str:
    """Returns HTML of a unified difference, each line marked as added, removed or context."""
    kinds: dict[str, Callable[[str], str]] = {
        "+": lambda line: f"<ins>{line}</ins>",
        "-": lambda line: f"<del>{line}</del>",
        "@": lambda line: f"<b>{line}</b>",
    }
    return "\n".join(
        kinds.get(line[:1], str)(html.escape(line)) for line in shown(diff).splitlines()[2:]
    )
