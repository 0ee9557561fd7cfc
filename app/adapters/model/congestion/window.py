"""How many requests an endpoint is given at once: additive increase, multiplicative decrease.

Pure: answers and the clock go in, the next window comes out.  One window serves one endpoint as
one process sees it.

Source: Jacobson, Congestion Avoidance and Control (1988): slow start and AIMD.  Departures: no
single refusal counts, since any endpoint refuses one now and then, but evidence against chance
(`evidence`); a decrease is a tenth, because a halved window idles a paid
endpoint, and grows with the share of refusals, as in Data Center TCP (Alizadeh et al., 2010); the
rise is slow near the last ceiling and quicker away from it, as in CUBIC (Ha et al., 2008); a share
of refusals that does not fall with the window is the endpoint's own failure rate, and shrinks the
window no more.
"""

import math
from dataclasses import dataclass, replace

from app.adapters.model.congestion import evidence
from app.adapters.model.congestion.samples import SampleWindow

GENTLE, FIRM, HARSH = 0.9, 0.75, 0.5
"""What is left of a window: after a few refusals, after several, after little else."""
SPELL = 40
"""Answers from which a share of refusals is read."""
SLOWEST_ROUNDS = 320
"""Round trips in which a window near its ceiling would double: 32 make up for a decrease."""
LONGEST_TEST = 4 * SPELL
"""Answers after which a test ends with what is likelier."""
USED = 0.9
"""Share of the window in flight from which on it counts as used."""
RETEST_SPELLS = 40
"""Spells after which an endpoint's own failure rate is measured again."""
SMOOTHING = 0.2
FIRST_ROUND_TRIP_SECONDS, SHORTEST_ROUND_TRIP_SECONDS = 1.0, 0.02
QUEUE_ALLOWED = 0.1
"""Requests waiting in an engine, per running one, that keep it fed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a window may be.

    Attributes:
      least: It never falls below; >= 1.
      start: Where it begins; it seeks its size from there.
      most: It never rises above.
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
class Before:
    """A window and its share of refusals before a decrease that puts both to the test."""

    size: float
    share: float


@dataclass(frozen=True, slots=True)
class Window:
    """The window of one endpoint; every method returns the next one.

    Attributes:
      size: How many requests may be in flight; fractions add up.
      threshold: Below it the window doubles in a round trip.
      ceiling: Where it was last refused.
      debt: Slots of refused requests, each empty until another request is served.
      failing: The endpoint's own share of refusals, which no smaller window lowers.
      smoothed: The share of refusals of late, by the last spells.
      round_trip_seconds: Smoothed time from asking to being served; None before the first.
      decreased_at: When it last shrank; by the caller's clock, in seconds.
      held_until: It does not rise before.
      streak: Refusals since something was last served, the first of them at `refused_at`.
      spells: Since the failure rate was last measured.
      before: None unless a test is on.
      fullness: Evidence of late that the endpoint is full: logarithm of the odds against chance.
      trusted: The largest window that was given up for refusals; comes back if they were chance.
    """

    bounds: Bounds
    size: float
    spell: SampleWindow
    threshold: float = math.inf
    ceiling: float = math.inf
    debt: int = 0
    failing: float = 0.0
    smoothed: float = 0.0
    round_trip_seconds: float | None = None
    decreased_at: float = -math.inf
    held_until: float = -math.inf
    streak: int = 0
    refused_at: float = 0.0
    spells: int = 0
    before: Before | None = None
    fullness: float = 0.0
    trusted: float = 0.0

    @classmethod
    def opened(cls, bounds: Bounds, now: float) -> "Window":
        """Returns the window of an endpoint that nothing is known of."""
        return cls(bounds, float(bounds.start), SampleWindow(now, bounds.start))

    @property
    def open(self) -> int:
        """How many requests may be in flight now; at least one, or nothing would be learnt."""
        return max(1, int(self.size) - self.debt)

    def served(self, now: float, sent_at: float, in_flight: int, places: int = 1) -> "Window":
        """Returns the window after an answer.

        Args:
          now: Seconds by a clock that never goes back.
          sent_at: When the request was sent, by the same clock.
          in_flight: Semaphore of requests in flight, those of the answered one included.
          places: Of the request: one for each sample that it asks for.
        """
        took = max(now - sent_at, SHORTEST_ROUND_TRIP_SECONDS)
        known = self.round_trip_seconds
        size = self.size
        if in_flight >= USED * int(size) and now >= self.held_until and self.before is None:
            size = min(size + places * self._rise(), float(self.bounds.most))
        after = replace(
            self,
            size=size,
            debt=max(0, self.debt - places),
            spell=self.spell.answered(in_flight, served=places),
            round_trip_seconds=took if known is None else known + SMOOTHING * (took - known),
            streak=0,
            fullness=max(0.0, self.fullness + places * evidence.of_service(self._by_itself)),
        )
        return after._closed(now)

    def refused(self, now: float, sent_at: float, in_flight: int, places: int = 1) -> "Window":
        """Returns the window after a 429, a 5xx or a time-out; arguments as for `served`.

        A few in a row shrink it at once: chance seldom explains them, an endpoint that is full
        does.  Those sent before a decrease say nothing about it.
        """
        after = replace(
            self,
            debt=min(self.debt + places, max(0, int(self.size) - 1)),
            spell=self.spell.answered(
                in_flight, refused=places, refused_seconds=places * (now - sent_at)
            ),
            streak=self.streak + 1,
            refused_at=self.refused_at if self.streak else now,
        )
        if after.streak >= 3 and now - after.refused_at >= 2 * after._round_trip:
            return after._out(now)
        if self.before is None and sent_at >= self.decreased_at:
            found = after.fullness + places * evidence.of_refusal(self._by_itself)
            after = replace(after, fullness=min(found, 2 * evidence.SURE))
            if found >= evidence.SURE and after._may_decrease(now):
                after = replace(after._decreased(now, GENTLE), fullness=0.0)
        return after._closed(now)

    def queued(self, now: float, running: int, waiting: int) -> "Window":
        """Returns the window after a look at the engine's own queue.

        Args:
          now: As for `served`.
          running: Requests the engine works at, of everybody.
          waiting: Requests it has accepted and not begun, of everybody.
        """
        allowed = max(2.0, QUEUE_ALLOWED * running)
        if waiting * 2 <= allowed:
            return self
        held = replace(self, held_until=now + self._round_trip)
        if waiting <= allowed or not self._may_decrease(now):
            return held
        kept = (running + allowed / 2) / (running + waiting)
        return held._decreased(now, min(GENTLE, max(HARSH, kept)))

    @property
    def _by_itself(self) -> float:
        return evidence.by_itself(self.failing, self.smoothed)

    @property
    def _odds(self) -> float:
        assert self.before is not None
        share, size = self.before.share, self.before.size
        fits = 1.0 - (1.0 - share) * size / self.size
        return evidence.chance(self.spell, share, max(self.failing, fits))

    @property
    def _round_trip(self) -> float:
        known = self.round_trip_seconds
        return FIRST_ROUND_TRIP_SECONDS if known is None else known

    @property
    def _base(self) -> float:
        """What was in use: a window that was not filled has not been tried beyond that."""
        peak = float(self.spell.peak or self.size)
        return max(float(self.bounds.least), min(self.size, peak))

    def _rise(self) -> float:
        """Returns by how much one served request widens the window."""
        if self.size < self.threshold:
            return 1.0
        away = self.size - self.ceiling
        quicker = min(away, self.size / 8) if away > 0 else -away / 4
        return max(self.size / SLOWEST_ROUNDS, quicker) / self.size

    def _may_decrease(self, now: float) -> bool:
        return now - self.decreased_at >= self._round_trip

    def _decreased(self, now: float, kept: float) -> "Window":
        base = self._base
        size = max(float(self.bounds.least), base * kept)
        return replace(self, size=size, threshold=size, ceiling=base, decreased_at=now)

    def _out(self, now: float) -> "Window":
        """Returns the window of an endpoint that answers nothing: what it can bear is unknown.

        It opens again to where it was, doubling, once something is served.
        """
        least = float(self.bounds.least)
        fresh = SampleWindow(now, least)
        if self.size <= least:
            return replace(self, spell=fresh)
        known = self.before.size if self.before else self.spell.size
        return replace(
            self, size=least, threshold=known, decreased_at=now, before=None, spell=fresh
        )

    def _closed(self, now: float) -> "Window":
        """Returns the window after the spell has been judged, if it is over."""
        spell = self.spell
        enough = spell.answers >= max(SPELL, spell.size * (2 if self.failing else 1))
        if not enough or now - max(spell.since, self.decreased_at) < self._round_trip:
            return self
        if self.before and abs(self._odds) < evidence.SURE_OF_TEST and spell.answers < LONGEST_TEST:
            return self
        judged = replace(self, spells=self.spells + 1)
        if evidence.crowded(spell, self.size, self.debt, now):
            judged = judged._crowded(now)
        else:
            judged = judged._tested(now) if self.before else judged._judged(now)
        return replace(
            judged, spell=SampleWindow(now, judged.size), smoothed=self._smoothed_by(spell.share)
        )

    def _smoothed_by(self, share: float) -> float:
        """Returns the share of refusals of late; a full endpoint's is not one by chance."""
        if share >= evidence.CROWDED:
            return self.smoothed
        return self.smoothed + (SMOOTHING if self.smoothed else 1.0) * (share - self.smoothed)

    def _crowded(self, now: float) -> "Window":
        """Returns the window of an endpoint that serves one request for each it refuses.

        Chance does not leave so many slots empty: what was in flight is what it bears.
        """
        shrunk = self._decreased(now, GENTLE)
        return replace(shrunk, before=None, failing=0.0, debt=0, trusted=0.0)

    def _judged(self, now: float) -> "Window":
        """Returns the window after a spell: smaller, and put to the test, where it is refused."""
        share = self.spell.share
        if evidence.alarming(self.spell, self.failing):
            kept = max(HARSH, min(FIRM, 1.0 - share / 2))
            before = Before(max(self._base, self.spell.size), share)
            return replace(self._decreased(now, kept), before=before)
        if self.failing > 0.0 and self.spells >= RETEST_SPELLS:
            return replace(self._decreased(now, FIRM), before=Before(self._base, self.smoothed))
        failing = self.failing + SMOOTHING / 2 * (share - self.failing)
        return replace(self, failing=evidence.worth_knowing(failing) if self.failing else 0.0)

    def _tested(self, now: float) -> "Window":
        """Returns the window after a test: wider again if the smaller one was refused as much."""
        assert self.before is not None
        share = self.spell.share
        ended = replace(self, before=None, spells=0, fullness=0.0)
        if self._odds > 0:
            rate = (share + self.before.share) / 2
            size = max(self.size, self.before.size, self.trusted)
            back = replace(ended, size=size, threshold=size, ceiling=size)
            return replace(back, failing=rate, debt=0, trusted=0.0)
        trusted = max(self.trusted, self.before.size)
        ended = replace(
            ended, failing=evidence.worth_knowing(min(self.failing, share)), trusted=trusted
        )
        if not evidence.alarming(ended.spell, ended.failing):
            return ended
        again = ended._judged(now)
        if again.before is None:
            return again
        return replace(again, before=replace(again.before, size=self.before.size))
