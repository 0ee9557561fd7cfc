"""Injected faults: which requests are not answered as they should be."""

import enum
from dataclasses import dataclass
from random import Random


class Fault(enum.StrEnum):
    """What is done to a request instead of answering it."""

    TOO_MANY = "429"  # refused at once
    BROKEN = "5xx"  # refused at once, with 500, 502 or 503
    HANG = "hang"  # never answered; ends when the client gives up
    GARBAGE = "garbage"  # answered in time with 200 and a body that is no completion


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Shares of all requests, each from 0 to 1, together 1 at most.

    Attributes:
      retry_after_seconds: What a 429 asks to wait; None: it carries no Retry-After.
    """

    too_many: float = 0.0
    broken: float = 0.0
    hang: float = 0.0
    garbage: float = 0.0
    retry_after_seconds: float | None = None

    def __post_init__(self) -> None:
        """Checks the rates.

        Raises:
          ValueError: One is no share, or they are more than everything together.
        """
        for name, rate in self._named():
            if not 0.0 <= rate <= 1.0:
                raise ValueError(f"the rate of {name} must be from 0 to 1, not {rate:g}")
        together = sum(rate for _, rate in self._named())
        if together > 1.0 + 1e-9:
            raise ValueError(f"the rates of faults are {together:g} together: 1 is everything")
        if self.retry_after_seconds is not None and self.retry_after_seconds < 0:
            raise ValueError(f"Retry-After must be 0 or more, not {self.retry_after_seconds:g}")

    def draw(self, rng: Random) -> Fault | None:
        """Draws what happens to one request; None: it is answered."""
        left = rng.random()
        for fault, (_, rate) in zip(Fault, self._named(), strict=True):
            left -= rate
            if left < 0:
                return fault
        return None

    def _named(self) -> list[tuple[str, float]]:
        return [
            ("429s", self.too_many),
            ("5xx", self.broken),
            ("hangs", self.hang),
            ("garbage", self.garbage),
        ]

    def __str__(self) -> str:
        told = [f"{rate:.1%} {name}" for name, rate in self._named() if rate]
        return ", ".join(told) or "none"


GARBAGE = (
    b"<html><body><h1>200 OK</h1>this is no completion</body></html>",
    b'{"id": "chatcmpl-0", "object": "chat.completion", "choices": [{"index": 0, "mess',
    b'{"object": "chat.completion"}',
    b"",
    b"\xff\xfe\x00\x01",
)
"""Bodies of a 200 that are no chat completion: a page, a cut one, an empty one, noise."""
