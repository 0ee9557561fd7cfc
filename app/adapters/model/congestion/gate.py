"""What stands before an endpoint: who may ask it now, and what every answer tells of its load."""

import enum
from dataclasses import dataclass
from typing import Protocol

from app.adapters.model.congestion.semaphore import Semaphore


class Ended(enum.StrEnum):
    """How one request ended, as far as the endpoint's load goes."""

    ANSWERED = "answered"
    BUSY = "busy"  # 429, or 503: it is there and has too much to do
    FAILED = "failed"  # another 5xx, a broken connection, an answer that is none
    TIMED_OUT = "timed_out"
    REFUSED = "refused"  # another 4xx: about the request, not about the load
    LEFT = "left"  # whoever asked went away


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request told.

    Attributes:
      latency_seconds: From sending to the answer or to its absence.
      retry_after_seconds: How long the endpoint asks to be left alone; 0.0 where it does not say.
      samples: It asked for, each of which takes a place.
    """

    ended: Ended
    latency_seconds: float = 0.0
    retry_after_seconds: float = 0.0
    samples: int = 1


class Gate(Protocol):
    """Admits requests to one endpoint.

    Both methods run on the exchange's one event loop, so an implementation needs no lock.  Every
    `acquire` that returns is followed by one `release`; one that is cancelled or raises is not.
    """

    async def acquire(self, samples: int = 1, *, again: bool = False) -> None:
        """Waits until one more request may be sent.

        Args:
          samples: It asks for; the outcome says the same number.
          again: Whether it was sent before: it does not stand in line a second time.

        Raises:
          Unavailable: Who decides cannot be reached.
        """
        ...

    async def release(self, outcome: Outcome) -> None:
        """Hands the place back, with what the request told."""
        ...


class FixedGate:
    """Admits so many requests at once, whatever they tell."""

    def __init__(self, places: int) -> None:
        self._places = Semaphore(lambda: places)

    async def acquire(self, samples: int = 1, *, again: bool = False) -> None:
        await self._places.take(samples, first=again)

    async def release(self, outcome: Outcome) -> None:
        self._places.give(outcome.samples)
