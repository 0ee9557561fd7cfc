"""Numbers as text, with the digits that tell them apart."""

from collections.abc import Iterable, Sequence

LEAST_DIGITS = 6
_MOST_DIGITS = 17
"""Significant digits that give every float a text of its own."""


def number_texts(values: Sequence[float | None], beside: Iterable[float | None] = ()) -> list[str]:
    """Returns a text for each value: equal values have equal texts, and others never.

    A value has six significant digits, and more where another value would have the same text; a
    dash stands for None.

    Args:
      values: Those that are shown.
      beside: Values that are shown elsewhere, or not at all, and have no text of the result: the
        best and the start of a run, whose gain every text of the run shows.
    """
    texts = {}
    waiting = {value for value in (*values, *beside) if value is not None}
    for digits in range(LEAST_DIGITS, _MOST_DIGITS + 1):
        sharing: dict[str, list[float]] = {}
        for value in waiting:
            sharing.setdefault(f"{value:.{digits}g}", []).append(value)
        for text, those in sharing.items():
            if len(those) == 1 or digits == _MOST_DIGITS:
                texts.update(dict.fromkeys(those, text))
        waiting -= texts.keys()
        if not waiting:
            break
    return ["–" if value is None else texts[value] for value in values]


def number_text(value: float | None, *others: float | None) -> str:
    """Returns the text of a value that is shown beside others; see `number_texts`."""
    return number_texts([value, *others])[0]


def exact_text(value: float | None) -> str:
    """Returns the shortest text with six significant digits or more that no other value has.

    For a value that is compared with what another command prints; a dash stands for None.
    """
    if value is None:
        return "–"
    texts = (f"{value:.{digits}g}" for digits in range(LEAST_DIGITS, _MOST_DIGITS + 1))
    rounded = next(text for text in texts if float(text) == value)
    return min(rounded, repr(value), key=len)
