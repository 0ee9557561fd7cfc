"""Adaptive time-outs of single attempts, from how long recent answers took.

A request that hangs holds a slot until it times out.  A time-out that fits every model is minutes;
one that fits a model which answers within a second is seconds.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

FACTOR = 2.0
"""Times the slowest recent answer: after that an attempt counts as hanging."""
FEWEST = 30
"""Answers before which the time-out is the longest."""
HALF_LIFE = 200
"""Answers in which the weight of a slow answer falls to half."""
SHARED = 3
"""Time-outs without an answer between from which on the endpoint, and not a single request, counts
as slow: each doubles the time-out of every attempt."""
RESCHEDULED = 0.1
"""Relative change of the time-out at which attempts under way are given the new one."""
_FADING = 0.5 ** (1.0 / HALF_LIFE)


@dataclass(frozen=True, slots=True)
class AdaptiveTimeout:
    """The time-out of an attempt; every method returns the next value.

    Source: Jacobson, Congestion Avoidance and Control (1988), the retransmission timer; Karn and
    Partridge (1987), its back-off.  Departure: a fading peak in the place of mean and variance,
    because a false time-out costs a paid answer, and lengths of completions have long tails.

    Attributes:
      least: Lower bound, in seconds.
      most: Upper bound, in seconds; in force until enough answers have arrived.
      slowest: Time of the slowest recent answer, in seconds; it fades.
      answers: So far.
      timeouts: Since the last answer.
    """

    least: float
    most: float
    slowest: float = 0.0
    answers: int = 0
    timeouts: int = 0

    def answered(self, seconds: float) -> "AdaptiveTimeout":
        """Returns the value after an answer that took so many seconds."""
        slowest = max(seconds, self.slowest * _FADING)
        return replace(self, slowest=slowest, answers=self.answers + 1, timeouts=0)

    def timed_out(self) -> "AdaptiveTimeout":
        """Returns the value after an attempt that timed out."""
        return replace(self, timeouts=self.timeouts + 1)

    def seconds(self, earlier_timeouts: int = 0) -> float:
        """Returns the time-out of an attempt.

        Args:
          earlier_timeouts: Of attempts at the same prompt; each doubles the time-out, so that an
            answer that is only slow arrives in the end.
        """
        if self.answers < FEWEST:
            return self.most
        doubled = earlier_timeouts + max(0, self.timeouts + 1 - SHARED)
        adapted = FACTOR * self.slowest * 2.0 ** min(doubled, 32)
        return min(self.most, max(self.least, adapted))


class Attempts:
    """The attempts under way at one model, each with its time-out; on one event loop."""

    def __init__(self, least: float, most: float) -> None:
        """Begins with the longest time-out; see `AdaptiveTimeout`."""
        self._timeout = AdaptiveTimeout(min(least, most), most)
        self._scheduled = self._timeout.seconds()
        self._open: dict[asyncio.Timeout, tuple[float, float, int]] = {}

    @asynccontextmanager
    async def limited(self, most: float, earlier_timeouts: int | None) -> AsyncIterator[None]:
        """Limits the time of the block, and learns from a time-out.

        Answers to other attempts move the limit meanwhile.

        Args:
          most: Upper bound in seconds.
          earlier_timeouts: As for `AdaptiveTimeout.seconds`; None: the limit is `most`.

        Raises:
          TimeoutError: The block took too long.
        """
        began = asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(began + self._seconds(most, earlier_timeouts))
        try:
            async with limit:
                if earlier_timeouts is not None:
                    self._open[limit] = began, most, earlier_timeouts
                yield
        finally:
            self._open.pop(limit, None)
            if limit.expired():
                self._adapt(self._timeout.timed_out())

    def answered(self, seconds: float) -> None:
        """Adapts the time-out to an answer that took so many seconds."""
        self._adapt(self._timeout.answered(seconds))

    def _seconds(self, most: float, earlier_timeouts: int | None) -> float:
        return (
            most if earlier_timeouts is None else min(most, self._timeout.seconds(earlier_timeouts))
        )

    def _adapt(self, timeout: AdaptiveTimeout) -> None:
        self._timeout = timeout
        seconds = timeout.seconds()
        if abs(seconds - self._scheduled) <= RESCHEDULED * self._scheduled:
            return
        self._scheduled = seconds
        for limit, (began, most, earlier_timeouts) in self._open.items():
            if not limit.expired():
                limit.reschedule(began + self._seconds(most, earlier_timeouts))
