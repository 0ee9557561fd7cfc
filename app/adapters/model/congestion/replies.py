"""The replies that an endpoint is writing."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from app.adapters.model.congestion.silence import Listening

RATE_SECONDS = 10.0
"""Time over which the speed of writing is measured."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Replies in progress: those of which a token has arrived.

    Attributes:
      longest_seconds: Time since the oldest of their requests was sent.
      silent_seconds: Time since the last token of any of them.
    """

    replies: int = 0
    longest_seconds: float = 0.0
    tokens_per_second: float = 0.0
    silent_seconds: float = 0.0


class Replies:
    """The attempts under way at one endpoint; within one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: set[Listening] = set()
        self._ended_tokens = 0
        self._looks: deque[tuple[float, int]] = deque()

    def begin(self, listening: Listening) -> None:
        """Adds an attempt."""
        self._open.add(listening)

    def end(self, listening: Listening) -> None:
        """Removes an attempt that has ended."""
        self._open.discard(listening)
        self._ended_tokens += listening.tokens

    @property
    def writing(self) -> Writing:
        """The replies in progress; their speed since the earliest look of the last seconds."""
        now, tokens = self._clock(), self._ended_tokens + sum(each.tokens for each in self._open)
        self._looks.append((now, tokens))
        while len(self._looks) > 1 and self._looks[1][0] <= now - RATE_SECONDS:
            self._looks.popleft()
        began, before = self._looks[0]
        begun = [each for each in self._open if each.first_token_seconds is not None]
        if not begun:
            return Writing()
        return Writing(
            len(begun),
            max(each.seconds for each in begun),
            (tokens - before) / (now - began) if now > began else 0.0,
            min(each.silent_seconds for each in begun),
        )
