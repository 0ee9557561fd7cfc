"""Whether an endpoint's `Retry-After` is for all: a pure value.

What a refusal asks for is right for everybody where a rate is limited, and for the refused request
alone where the endpoint refuses now and then.  Which of the two it is shows in what was sent since.
"""

import math
from dataclasses import dataclass, replace

FEWEST = 4
"""Refusals that ask to be left alone, before that is taken for the endpoint's word to all."""
SHARE = 0.75
"""Of the requests sent since the first of them: above that, it is."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """What refusals with a `Retry-After` told; every method returns the next one.

    Times are seconds of any one clock.

    Attributes:
      until: Nothing is sent before.
      since: When the first refusal of this series came.
      expires: When the last of them said that it is over.
      told: How many there were.
      sent: Requests sent since the first.
    """

    until: float = -math.inf
    since: float = math.inf
    expires: float = -math.inf
    told: int = 0
    sent: int = 0

    def asked(self) -> "RetryAfter":
        """Returns the hold once one more request is on its way."""
        return replace(self, sent=self.sent + 1) if self.told else self

    def refused(self, now: float, seconds: float, in_flight: int) -> "RetryAfter":
        """Returns the hold after a refusal.

        Args:
          now: When it came.
          seconds: For which it asks to be left alone; 0 where it does not.
          in_flight: Requests in flight, the refused one included; where it is the only one,
            nothing speaks against its word.
        """
        if seconds <= 0:
            return self
        fresh = not self.told or now >= self.expires
        begun = RetryAfter(since=now, until=self.until) if fresh else self
        ends = max(begun.expires, now + seconds)
        after = replace(begun, told=begun.told + 1, expires=ends)
        alone = in_flight <= 1
        if alone or (after.told >= FEWEST and after.told > SHARE * (after.sent + 1)):
            return replace(after, until=ends)
        return after

    def served(self, sent_at: float) -> "RetryAfter":
        """Returns the hold after an answer: over, if its request was sent since it began."""
        return RetryAfter() if sent_at >= self.since else self
