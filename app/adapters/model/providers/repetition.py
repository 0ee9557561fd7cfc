"""Whether a reply repeats itself for ever.  No I/O."""

FEWEST_CHARS = 2400
"""Shortest repetition that counts: about 600 tokens."""
FEWEST_TIMES = 6
"""Fewest repetitions of a long passage."""
_MOST_PERIOD = 2000
_PROBE_CHARS = 32
_MOST_LOOKS = 100


def repeats(text: str) -> bool:
    """Returns whether a text ends with one passage, again and again.

    A passage has up to 2,000 characters; it counts from six repetitions and 2,400 characters on.
    Numbered lines are no repetition: the limit of tokens ends such a reply.
    """
    if len(text) < FEWEST_CHARS:
        return False
    tail, end = text[-_PROBE_CHARS:], -1
    # A passage may hold repetitions of its own, so that the nearest place is not always its start.
    for _ in range(_MOST_LOOKS):
        start = text.rfind(tail, -_MOST_PERIOD - _PROBE_CHARS, end)
        if start < 0:
            return False
        period = len(text) - _PROBE_CHARS - start
        length = max(FEWEST_CHARS, FEWEST_TIMES * period)
        if len(text) >= length and text[-length:-period] == text[-length + period :]:
            return True
        end = start + _PROBE_CHARS - 1
    return False
