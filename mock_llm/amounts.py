"""Amounts that are drawn: one fixed number, or a distribution of numbers."""

import math
from dataclasses import dataclass
from random import Random
from typing import Literal

LARGEST_SIGMA = 10.0
"""A sixth of all draws are then above 22,000 times the median; far beyond, they are no numbers."""
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
        """Draws one; what a normal distribution puts below zero is zero."""
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
    """Returns the amount that a text such as `0.8` or `lognormal:0.8,0.5` spells.

    Raises:
      ValueError: It spells none; says what it may look like.
    """
    form, colon, rest = text.rpartition(":")
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    sound = all(math.isfinite(number) and number >= 0 for number in numbers)
    if sound and not colon and len(numbers) == 1:
        return Amount("fixed", numbers[0])
    if sound and len(numbers) == 2 and form == "normal":
        return Amount("normal", *numbers)
    if sound and len(numbers) == 2 and form == "lognormal" and numbers[1] <= LARGEST_SIGMA:
        return Amount("lognormal", *numbers)
    raise ValueError(f"{text!r} is no amount: write {FORMS}, all 0 or more")
