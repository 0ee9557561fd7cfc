"""Whether a `Retry-After` of an endpoint applies to every request: a pure value.

Where the endpoint limits a rate, the header is right for every request; where the endpoint refuses
a request now and then, it is right for the refused request alone.  The requests sent since the
first such refusal tell the two cases apart.
"""

import math
from dataclasses import dataclass, replace

FEWEST = 4
"""Refusals with a `Retry-After` before the header is applied to every request."""
SHARE = 0.75
"""Share of such refusals among the requests sent since the first of them; above it, likewise."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """A series of refusals with a `Retry-After`; every method returns the next value.

    Times are seconds of any one clock.

    Attributes:
      until: Time before which nothing is sent.
      since: Time of the first refusal of the series.
      expires: Latest time that a refusal of the series named.
      refusals: Of the series.
      sent: Requests sent since the first refusal.
    """

    until: float = -math.inf
    since: float = math.inf
    expires: float = -math.inf
    refusals: int = 0
    sent: int = 0

    def after_sending(self) -> "RetryAfter":
        """Returns the value after one more request was sent."""
        return replace(self, sent=self.sent + 1) if self.refusals else self

    def refused(self, now: float, seconds: float, in_flight: int) -> "RetryAfter":
        """Returns the value after a refusal.

        Args:
          now: Time of the refusal.
          seconds: Its `Retry-After`; 0 without one.
          in_flight: Requests in flight, the refused request included; where it is the only one,
            nothing contradicts its header.
        """
        if seconds <= 0:
            return self
        expired = not self.refusals or now >= self.expires
        series = RetryAfter(since=now, until=self.until) if expired else self
        ends = max(series.expires, now + seconds)
        after = replace(series, refusals=series.refusals + 1, expires=ends)
        alone = in_flight <= 1
        if alone or (after.refusals >= FEWEST and after.refusals > SHARE * (after.sent + 1)):
            return replace(after, until=ends)
        return after

    def served(self, sent_at: float) -> "RetryAfter":
        """Returns the value after an answer, which ends the series if its request is younger."""
        return RetryAfter() if sent_at >= self.since else self
