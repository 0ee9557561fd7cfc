"""How many requests an endpoint is sent at once: additive increase, multiplicative decrease.

Pure: the results of requests and the clock go in, the next window comes out.  One window serves one
endpoint as one process sees it.  `docs/decisions/model-window.md` says what each mechanism earns.

Sources: Jacobson, Congestion Avoidance and Control (1988): slow start and AIMD; Page, Continuous
Inspection Schemes (1954): the sum of evidence that never falls below zero.  Departures: a single
refusal shrinks nothing, because any endpoint refuses a request now and then; a decrease is a tenth,
because a halved window idles a paid endpoint; the increase is slow near the last ceiling and
quicker away from it, as in CUBIC (Ha et al., 2008).
"""

import math
from dataclasses import dataclass, replace

FULL = 0.5
"""Share of refusals of a full endpoint: it refuses one request for each that it serves."""
FAILING = 0.15
"""Share of requests that an endpoint is assumed to refuse at any load: more than most do, because a
window that is too large costs refusals, and one that is too small costs the endpoint's time."""
SURE = math.log(1000)
"""Evidence at which an endpoint counts as full: logarithm of the odds against chance."""
SPEAKS_FOR, AGAINST = math.log(FULL / FAILING), math.log((1 - FULL) / (1 - FAILING))
"""Evidence of a refusal, and of an answer."""
GENTLE, HARSH = 0.9, 0.5
"""Part of the window that is left after a decrease, and at the least after one look at an engine's
queue."""
SLOWEST_ROUNDS = 320
"""Round trips in which a window near its ceiling would double; 32 make up for a decrease."""
USED = 0.9
"""Share of the window in flight from which on the window counts as used."""
SMOOTHING = 0.2
FIRST_ROUND_TRIP_SECONDS, SHORTEST_ROUND_TRIP_SECONDS = 1.0, 0.02
QUEUE_ALLOWED = 0.1
"""Requests waiting in an engine, per running request, that keep the engine fed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a window.

    Attributes:
      least: Lower bound of the size; >= 1.
      start: Size at the beginning.
      most: Upper bound of the size.
    """

    least: int = 1
    start: int = 32
    most: int = 256

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.start <= self.most:
            raise ValueError(
                f"a window needs 1 <= least <= start <= most, not {self.least}, {self.start}, "
                f"{self.most}"
            )


@dataclass(frozen=True, slots=True)
class Window:
    """The window of one endpoint; every method returns the next window.

    Attributes:
      size: Requests that may be in flight; fractions accumulate.
      threshold: Size below which the window doubles in a round trip.
      ceiling: Size at the last decrease.
      withheld: Slots of refused requests, each kept empty until another request is served.
      evidence: Of a full endpoint: logarithm of the odds against chance; never below zero.
      round_trip_seconds: Smoothed time from a request to its answer; None before the first answer.
      decreased_at: Time of the last decrease, in seconds of the caller's clock.
      held_until: Time before which the window does not grow.
      streak: Refusals since the last answer; the first of them arrived at `refused_at`.
    """

    bounds: Bounds
    size: float
    threshold: float = math.inf
    ceiling: float = math.inf
    withheld: int = 0
    evidence: float = 0.0
    round_trip_seconds: float | None = None
    decreased_at: float = -math.inf
    held_until: float = -math.inf
    streak: int = 0
    refused_at: float = 0.0

    @classmethod
    def opened(cls, bounds: Bounds) -> "Window":
        """Returns the window of an endpoint of which nothing is known."""
        return cls(bounds, float(bounds.start))

    @property
    def open(self) -> int:
        """Requests that may be in flight now; at least one, because only results teach."""
        return max(1, int(self.size) - self.withheld)

    def served(self, now: float, sent_at: float, in_flight: int, samples: int = 1) -> "Window":
        """Returns the window after an answer.

        Args:
          now: Seconds of a clock that never goes back.
          sent_at: Time at which the request was sent, by the same clock.
          in_flight: Slots of the requests in flight, the answered request included.
          samples: Completions that the request asked for; each of them took a slot.
        """
        seconds = max(now - sent_at, SHORTEST_ROUND_TRIP_SECONDS)
        known, size = self.round_trip_seconds, self.size
        if in_flight >= USED * int(size) and now >= self.held_until:
            size = min(size + samples * self._increase(), float(self.bounds.most))
        return replace(
            self,
            size=size,
            withheld=max(0, self.withheld - samples),
            round_trip_seconds=seconds if known is None else known + SMOOTHING * (seconds - known),
            streak=0,
            evidence=max(0.0, self.evidence + samples * AGAINST),
        )

    def refused(self, now: float, sent_at: float, in_flight: int, samples: int = 1) -> "Window":
        """Returns the window after a 429, a 5xx or a time-out; arguments as for `served`.

        A few refusals in a row shrink the window at once: a full endpoint explains them better than
        chance.  Requests sent before a decrease are no evidence about the smaller window.
        """
        after = replace(
            self,
            withheld=min(self.withheld + samples, max(0, int(self.size) - 1)),
            streak=self.streak + 1,
            refused_at=self.refused_at if self.streak else now,
        )
        if after.streak >= 3 and now - after.refused_at >= 2 * after._round_trip:
            return after._closed(now)
        if sent_at < self.decreased_at:
            return after
        after = replace(after, evidence=after.evidence + samples * SPEAKS_FOR)
        if after.evidence < SURE or not after._may_decrease(now):
            return after
        used = in_flight + self.withheld
        return replace(after._decreased(now, used, GENTLE), evidence=0.0)

    def queued(self, now: float, running: int, waiting: int, in_flight: int) -> "Window":
        """Returns the window after a look at the engine's own queue.

        Args:
          now: As for `served`.
          running: Requests that the engine processes, of all clients.
          waiting: Requests that the engine has accepted and not begun, of all clients.
          in_flight: Slots of the requests in flight.
        """
        allowed = max(2.0, QUEUE_ALLOWED * running)
        if waiting * 2 <= allowed:
            return self
        held = replace(self, held_until=now + self._round_trip)
        if waiting <= allowed or not self._may_decrease(now):
            return held
        kept = (running + allowed / 2) / (running + waiting)
        return held._decreased(now, in_flight, min(GENTLE, max(HARSH, kept)))

    @property
    def _round_trip(self) -> float:
        known = self.round_trip_seconds
        return FIRST_ROUND_TRIP_SECONDS if known is None else known

    def _increase(self) -> float:
        """Returns by how much one served request widens the window."""
        if self.size < self.threshold:
            return 1.0
        beyond = self.size - self.ceiling
        quicker = min(beyond, self.size / 8) if beyond > 0 else -beyond / 4
        return max(self.size / SLOWEST_ROUNDS, quicker) / self.size

    def _may_decrease(self, now: float) -> bool:
        shrinkable = self.size > self.bounds.least
        return shrinkable and now - self.decreased_at >= self._round_trip

    def _decreased(self, now: float, used: int, kept: float) -> "Window":
        """Returns a smaller window.

        Args:
          now: As for `served`.
          used: Slots that were in use, or withheld: more than that has not been tried.
          kept: Part of these that is left.
        """
        least = float(self.bounds.least)
        ceiling = max(least, min(self.size, float(used)))
        size = max(least, ceiling * kept)
        return replace(self, size=size, threshold=size, ceiling=ceiling, decreased_at=now)

    def _closed(self, now: float) -> "Window":
        """Returns the window of an endpoint that answers nothing: its capacity is unknown.

        The window doubles up to its former size once a request is served.
        """
        least = float(self.bounds.least)
        if self.size <= least:
            return self
        former = self.size if self.ceiling == math.inf else max(self.size, self.ceiling)
        return replace(self, size=least, threshold=former, decreased_at=now)
