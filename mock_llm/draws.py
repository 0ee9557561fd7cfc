"""What the simulation draws: amounts of seconds and tokens, and injected faults."""

import enum
import math
from dataclasses import dataclass
from random import Random
from typing import Literal

LARGEST_SIGMA = 10.0
"""A sixth of all draws then exceeds 22,000 times the median; far larger values overflow."""
FORMS = "NUMBER, normal:MEAN,DEVIATION or lognormal:MEDIAN,SIGMA"


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of seconds or tokens, drawn anew for each use; never negative.

    Attributes:
      middle: The number itself, the mean, or the median.
      spread: Standard deviation: of the number, or of its logarithm; 0.0 for a fixed one.
    """

    form: Literal["fixed", "normal", "lognormal"]
    middle: float
    spread: float = 0.0

    def draw(self, rng: Random) -> float:
        """Draws a number; a negative number of a normal distribution becomes zero."""
        match self.form:
            case "fixed":
                return self.middle
            case "normal":
                return max(0.0, rng.gauss(self.middle, self.spread))
            case "lognormal":
                return self.middle * math.exp(rng.gauss(0.0, self.spread))

    def __str__(self) -> str:
        if self.form == "fixed":
            return f"{self.middle:g}"
        return f"{self.form}:{self.middle:g},{self.spread:g}"


def read_amount(text: str) -> Amount:
    """Returns the amount in a text such as `0.8` or `lognormal:0.8,0.5`.

    Raises:
      ValueError: The text is no amount; the message names the forms.
    """
    form, colon, rest = text.rpartition(":")
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    valid = all(math.isfinite(number) and number >= 0 for number in numbers)
    if valid and not colon and len(numbers) == 1:
        return Amount("fixed", numbers[0])
    if valid and len(numbers) == 2 and form == "normal":
        return Amount("normal", *numbers)
    if valid and len(numbers) == 2 and form == "lognormal" and numbers[1] <= LARGEST_SIGMA:
        return Amount("lognormal", *numbers)
    raise ValueError(f"{text!r} is no amount: write {FORMS}, all 0 or more")


class InjectedFault(enum.StrEnum):
    """What happens to a request instead of a proper answer."""

    TOO_MANY = "429"
    """The request is refused at once."""
    BROKEN = "5xx"
    """The request is refused at once, with 500, 502 or 503."""
    HANG = "hang"
    """The request is never answered, and ends when the client gives up."""
    GARBAGE = "garbage"
    """The request is answered in time with 200 and a body that is no completion."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Shares of all requests, each from 0 to 1, together 1 at most.

    Attributes:
      retry_after_seconds: The value of Retry-After in a 429; None: the header is absent.
    """

    too_many: float = 0.0
    broken: float = 0.0
    hang: float = 0.0
    garbage: float = 0.0
    retry_after_seconds: float | None = None

    def __post_init__(self) -> None:
        """Checks the rates.

        Raises:
          ValueError: A rate is no share, or their sum exceeds 1.
        """
        for name, rate in self._named():
            if not 0.0 <= rate <= 1.0:
                raise ValueError(f"the rate of {name} must be from 0 to 1, not {rate:g}")
        together = sum(rate for _, rate in self._named())
        if together > 1.0 + 1e-9:
            raise ValueError(f"the rates of faults are {together:g} together: 1 is everything")
        if self.retry_after_seconds is not None and self.retry_after_seconds < 0:
            raise ValueError(f"Retry-After must be 0 or more, not {self.retry_after_seconds:g}")

    def draw(self, rng: Random) -> InjectedFault | None:
        """Draws the fault of one request; None: the request is answered."""
        left = rng.random()
        for fault, (_, rate) in zip(InjectedFault, self._named(), strict=True):
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
        rates = [f"{rate:.1%} {name}" for name, rate in self._named() if rate]
        return ", ".join(rates) or "none"


GARBAGE = (
    b"<html><body><h1>200 OK</h1>this is no completion</body></html>",
    b'{"id": "chatcmpl-0", "object": "chat.completion", "choices": [{"index": 0, "mess',
    b'{"object": "chat.completion"}',
    b"",
    b"\xff\xfe\x00\x01",
)
"""Bodies of a 200 that are no chat completion: a page, a truncated or empty body, noise."""
