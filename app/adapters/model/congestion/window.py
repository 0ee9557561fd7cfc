"""How many requests an endpoint is sent at once: additive increase, multiplicative decrease.

Pure: the results of requests and the clock go in, the next window comes out.  One window serves one
endpoint as one process sees it.  `docs/decisions/model-window.md` says what each mechanism earns.

Sources: Jacobson, Congestion Avoidance and Control (1988): slow start and AIMD; Page, Continuous
Inspection Schemes (1954): the sum of evidence that never falls below zero; Wald, Sequential Tests
of Statistical Hypotheses (1945): the test of two shares.  Departures: a single refusal shrinks
nothing, because any endpoint refuses a request now and then; a decrease is a tenth, because a
halved window idles a paid endpoint; the increase is slow near the last ceiling and quicker away
from it, as in CUBIC (Ha et al., 2008); a share of refusals that does not fall with the window is
the endpoint's own failure rate, and shrinks the window no more.
"""

import math
from dataclasses import dataclass, replace

SAMPLE = 40
"""Fewest results from which a share of refusals is read."""
LONGEST_PROBE = 4 * SAMPLE
"""Results after which a probe ends with the likelier of its two explanations."""
FULL = 0.5
"""Share of refusals of a full endpoint: it refuses one request for each that it serves."""
LEAST_FAILING, MOST_FAILING = 0.05, 0.35
"""Bounds of what an endpoint is assumed to refuse at any load."""
SURE = math.log(1000)
"""Evidence at which an endpoint counts as full: logarithm of the odds against chance."""
SURE_OF_PROBE = math.log(100)
"""Evidence at which a probe ends, either way."""
SEVERAL = 0.15
"""Share of refusals beyond the known failure rate that starts a probe."""
CROWDED, OCCUPIED = 0.42, 0.25
"""Share of refusals, and share of the window that they occupy, which no failure rate explains."""
LEAST_SHARE = 0.02
"""Lower bound of the shares that a probe compares; below it a logarithm outweighs everything."""
REGRESSION = 0.7
"""Expected part of a share that was noticed because it was high: regression to the mean."""
GENTLE, FIRM, HARSH = 0.9, 0.75, 0.5
"""Part of the window that is left after a decrease, after the start of a probe, and at the least
after one look at an engine's queue."""
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
class SampleWindow:
    """Counts of the results since a moment, over a round trip or more.

    Attributes:
      since: The moment, in seconds.
      size: Size of the window at that moment.
      peak: Most requests in flight when a result arrived, or when an engine's queue was looked at.
      refused_seconds: Sum of the times for which refused requests were in flight.
    """

    since: float
    size: float
    served: int = 0
    refused: int = 0
    peak: int = 0
    refused_seconds: float = 0.0

    @property
    def results(self) -> int:
        return self.served + self.refused

    @property
    def share(self) -> float:
        """Refused requests among all; 0 without a result."""
        return self.refused / max(1, self.results)

    def unchanged_odds(self, before: float, expected: float) -> float:
        """Returns the logarithm of the odds that a smaller window is refused as much as before.

        Args:
          before: Share of refusals of the larger window; 0 to 1.
          expected: Share that is left if the larger window was too large.  At least half of the
            share is assumed to go, because a smaller difference could not be measured.
        """
        fallen = max(LEAST_SHARE / 2, min(max(expected, LEAST_SHARE), before / 2))
        unchanged = max(REGRESSION * before, (fallen + before) / 2, 2 * LEAST_SHARE)
        refused = self.refused * math.log(unchanged / fallen)
        return refused + self.served * math.log((1 - unchanged) / (1 - fallen))


@dataclass(frozen=True, slots=True)
class Probe:
    """The window and its share of refusals before a decrease that tests what the cause is."""

    size: float
    share: float


@dataclass(frozen=True, slots=True)
class Window:
    """The window of one endpoint; every method returns the next window.

    Attributes:
      size: Requests that may be in flight; fractions accumulate.
      threshold: Size below which the window doubles in a round trip.
      ceiling: Size at the last decrease.
      withheld: Slots of refused requests, each kept empty until another request is served.
      failing: The endpoint's own share of refusals, which no smaller window lowers.
      evidence: Of a full endpoint: logarithm of the odds against chance; never below zero.
      round_trip_seconds: Smoothed time from a request to its answer; None before the first answer.
      decreased_at: Time of the last decrease, in seconds of the caller's clock.
      held_until: Time before which the window does not grow.
      streak: Refusals since the last answer; the first of them arrived at `refused_at`.
      probe: None unless a smaller window is being tested.
    """

    bounds: Bounds
    size: float
    sample: SampleWindow
    threshold: float = math.inf
    ceiling: float = math.inf
    withheld: int = 0
    failing: float = 0.0
    evidence: float = 0.0
    round_trip_seconds: float | None = None
    decreased_at: float = -math.inf
    held_until: float = -math.inf
    streak: int = 0
    refused_at: float = 0.0
    probe: Probe | None = None

    @classmethod
    def opened(cls, bounds: Bounds, now: float) -> "Window":
        """Returns the window of an endpoint of which nothing is known."""
        return cls(bounds, float(bounds.start), SampleWindow(now, bounds.start))

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
        known, size, sample = self.round_trip_seconds, self.size, self.sample
        if in_flight >= USED * int(size) and now >= self.held_until and self.probe is None:
            size = min(size + samples * self._increase(), float(self.bounds.most))
        speaks_against = math.log((1 - FULL) / (1 - self._assumed_failing))
        after = replace(
            self,
            size=size,
            withheld=max(0, self.withheld - samples),
            sample=replace(
                sample, served=sample.served + samples, peak=max(sample.peak, in_flight)
            ),
            round_trip_seconds=seconds if known is None else known + SMOOTHING * (seconds - known),
            streak=0,
            evidence=max(0.0, self.evidence + samples * speaks_against),
        )
        return after._judged(now)

    def refused(self, now: float, sent_at: float, in_flight: int, samples: int = 1) -> "Window":
        """Returns the window after a 429, a 5xx or a time-out; arguments as for `served`.

        A few refusals in a row shrink the window at once: a full endpoint explains them better than
        chance.  Requests sent before a decrease are no evidence about the smaller window.
        """
        sample = self.sample
        after = replace(
            self,
            withheld=min(self.withheld + samples, max(0, int(self.size) - 1)),
            sample=replace(
                sample,
                refused=sample.refused + samples,
                peak=max(sample.peak, in_flight),
                refused_seconds=sample.refused_seconds + samples * (now - sent_at),
            ),
            streak=self.streak + 1,
            refused_at=self.refused_at if self.streak else now,
        )
        if after.streak >= 3 and now - after.refused_at >= 2 * after._round_trip:
            return after._closed(now)
        if self.probe is None and sent_at >= self.decreased_at:
            evidence = after.evidence + samples * math.log(FULL / self._assumed_failing)
            after = replace(after, evidence=evidence)
            if evidence >= SURE and after._may_decrease(now):
                after = replace(after._decreased(now, GENTLE), evidence=0.0)
        return after._judged(now)

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
        # Few results may have come since the sample began, and none while this many were in flight.
        sample = replace(self.sample, peak=max(self.sample.peak, in_flight))
        held = replace(self, sample=sample, held_until=now + self._round_trip)
        if waiting <= allowed or not self._may_decrease(now):
            return held
        kept = (running + allowed / 2) / (running + waiting)
        return held._decreased(now, min(GENTLE, max(HARSH, kept)))

    @property
    def _assumed_failing(self) -> float:
        return min(MOST_FAILING, max(LEAST_FAILING, self.failing))

    @property
    def _round_trip(self) -> float:
        known = self.round_trip_seconds
        return FIRST_ROUND_TRIP_SECONDS if known is None else known

    @property
    def _used(self) -> float:
        """The part of the window that was in use: more than that has not been tried."""
        peak = float(self.sample.peak or self.size)
        return max(float(self.bounds.least), min(self.size, peak))

    def _increase(self) -> float:
        """Returns by how much one served request widens the window."""
        if self.size < self.threshold:
            return 1.0
        beyond = self.size - self.ceiling
        quicker = min(beyond, self.size / 8) if beyond > 0 else -beyond / 4
        return max(self.size / SLOWEST_ROUNDS, quicker) / self.size

    def _may_decrease(self, now: float) -> bool:
        return now - self.decreased_at >= self._round_trip

    def _decreased(self, now: float, kept: float) -> "Window":
        size = max(float(self.bounds.least), self._used * kept)
        return replace(self, size=size, threshold=size, ceiling=self._used, decreased_at=now)

    def _closed(self, now: float) -> "Window":
        """Returns the window of an endpoint that answers nothing: its capacity is unknown.

        The window doubles up to its former size once a request is served.
        """
        least = float(self.bounds.least)
        fresh = replace(self, sample=SampleWindow(now, least))
        if self.size <= least:
            return fresh
        former = self.sample.size
        return replace(fresh, size=least, threshold=former, decreased_at=now, probe=None)

    def _judged(self, now: float) -> "Window":
        """Returns the window after its sample was judged, if the sample is large enough."""
        sample, probe, odds = self.sample, self.probe, 0.0
        started = max(sample.since, self.decreased_at)
        if sample.results < max(SAMPLE, 2 * sample.size) or now - started < self._round_trip:
            return self
        if probe is not None:
            expected = 1.0 - (1.0 - probe.share) * probe.size / self.size
            odds = sample.unchanged_odds(probe.share, max(self.failing, expected))
            if abs(odds) < SURE_OF_PROBE and sample.results < LONGEST_PROBE:
                return self
        if self._crowded(now):
            shrunk = self._decreased(now, GENTLE)
            after = replace(shrunk, probe=None, failing=0.0, withheld=0)
        elif probe is not None:
            after = self._probed(probe, unchanged=odds > 0)
        else:
            after = self._watched(now)
        return replace(after, sample=SampleWindow(now, after.size))

    def _crowded(self, now: float) -> bool:
        """Returns whether refusals keep too many slots from work for a failure rate to explain.

        A refusal occupies its slot for as long as it takes, and while the slot is withheld.
        """
        sample = self.sample
        occupied = self.withheld + sample.refused_seconds / (now - sample.since)
        return occupied > OCCUPIED * self.size and sample.share >= CROWDED

    def _watched(self, now: float) -> "Window":
        """Returns the window after a sample: with a probe begun where much more was refused."""
        share = self.sample.share
        if share > self.failing + SEVERAL:
            probe = Probe(max(self._used, self.sample.size), share)
            return replace(self._decreased(now, FIRM), probe=probe)
        # A failure rate comes from a probe alone; afterwards it follows what is seen, and ends.
        rate = self.failing and self.failing + SMOOTHING / 2 * (share - self.failing)
        return replace(self, failing=rate)

    def _probed(self, probe: Probe, *, unchanged: bool) -> "Window":
        """Returns the window after a probe: as wide as before if the share of refusals remained."""
        share = self.sample.share
        ended = replace(self, probe=None, evidence=0.0)
        if unchanged:
            size = max(self.size, probe.size)
            rate = (share + probe.share) / 2
            return replace(ended, size=size, threshold=size, ceiling=size, failing=rate)
        return replace(ended, failing=min(self.failing, share))
