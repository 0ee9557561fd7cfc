"""How long one attempt is waited for, learnt from how long answers took.

A request that hangs holds a place until it times out.  A time-out that fits every model is minutes;
one that fits a model which answers within a second is seconds.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

FACTOR = 2.0
"""Times the slowest answer of late: beyond that an attempt counts as hanging."""
FEWEST = 30
"""Answers before which nothing is learnt."""
HALF_LIFE = 200
"""Answers in which a slow one is forgotten by half."""
SHARED = 3
"""Time-outs without an answer between: then it is the endpoint that became slow, not one request
that hangs, and each doubles what all are given."""
MOVED = 0.1
"""Attempts under way are given a new time once it differs by so much."""
_FADE = 0.5 ** (1.0 / HALF_LIFE)


@dataclass(frozen=True, slots=True)
class AdaptiveTimeout:
    """What answers told; every method returns the next one.

    Source: Jacobson, Congestion Avoidance and Control (1988), the retransmission timer; Karn and
    Partridge (1987), its back-off.  Departure: a peak that fades in the place of mean and variance,
    because a false time-out costs a paid answer, and lengths of completions have long tails.

    Attributes:
      least: Seconds that every attempt is given, whatever was learnt.
      most: Seconds of the longest; given until something is learnt.
      slowest: Of the answers of late, in seconds; it fades.
      answers: So far.
      hung: Time-outs since the last answer.
    """

    least: float
    most: float
    slowest: float = 0.0
    answers: int = 0
    hung: int = 0

    def answered(self, took: float) -> "AdaptiveTimeout":
        """Returns the patience after an answer that took so many seconds."""
        slowest = max(took, self.slowest * _FADE)
        return replace(self, slowest=slowest, answers=self.answers + 1, hung=0)

    def timed_out(self) -> "AdaptiveTimeout":
        """Returns the patience after an attempt that came to nothing in its time."""
        return replace(self, hung=self.hung + 1)

    def seconds(self, hung_before: int = 0) -> float:
        """Returns how long an attempt is given.

        Args:
          hung_before: Attempts at the same prompt that timed out; each doubles it, so that an
            answer that is only slow comes through.
        """
        if self.answers < FEWEST:
            return self.most
        doubled = hung_before + max(0, self.hung + 1 - SHARED)
        learnt = FACTOR * self.slowest * 2.0 ** min(doubled, 32)
        return min(self.most, max(self.least, learnt))


class Attempts:
    """The attempts under way of one model, each within its time; on one event loop."""

    def __init__(self, least: float, most: float) -> None:
        """Begins with nothing learnt; see `AdaptiveTimeout`."""
        self._patience = AdaptiveTimeout(min(least, most), most)
        self._given = self._patience.seconds()
        self._open: dict[asyncio.Timeout, tuple[float, float, int]] = {}

    @asynccontextmanager
    async def limited(self, most: float, hung_before: int | None) -> AsyncIterator[None]:
        """Bounds what is done within, and learns from how it ends.

        What is learnt meanwhile moves the bound.

        Args:
          most: Seconds, whatever was learnt.
          hung_before: As for `AdaptiveTimeout.seconds`; None: this attempt is given `most`.

        Raises:
          TimeoutError: It took too long.
        """
        began = asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(began + self._seconds(most, hung_before))
        try:
            async with limit:
                if hung_before is not None:
                    self._open[limit] = began, most, hung_before
                yield
        finally:
            self._open.pop(limit, None)
            if limit.expired():
                self._learn(self._patience.timed_out())

    def answered(self, took: float) -> None:
        """Learns from an answer that took so many seconds."""
        self._learn(self._patience.answered(took))

    def _seconds(self, most: float, hung_before: int | None) -> float:
        return most if hung_before is None else min(most, self._patience.seconds(hung_before))

    def _learn(self, patience: AdaptiveTimeout) -> None:
        self._patience = patience
        now = patience.seconds()
        if abs(now - self._given) <= MOVED * self._given:
            return
        self._given = now
        for limit, (began, most, hung_before) in self._open.items():
            if not limit.expired():
                limit.reschedule(began + self._seconds(most, hung_before))
