"""Gates: what a program needs to go on from one stage to the next."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Gate(Protocol):
    """A condition on the fitness after a stage.

    Attributes:
      window: The newest measurements of the stage on the island that it compares with; 0 for none.
    """

    @property
    def window(self) -> int: ...

    def passes(self, fitness: float, recent: Sequence[float]) -> bool:
        """Returns whether a program goes on.

        Args:
          fitness: The program's, over the stages so far.
          recent: Of up to `window` programs after the stage, this one's included.
        """
        ...


@dataclass(frozen=True, slots=True)
class AtLeast:
    """An absolute threshold."""

    threshold: float
    window: int = 0

    def passes(self, fitness: float, recent: Sequence[float]) -> bool:  # noqa: ARG002
        return fitness >= self.threshold

    def __str__(self) -> str:
        return f"the threshold {self.threshold:g}"


@dataclass(frozen=True, slots=True)
class Quantile:
    """At least as fit as a share of the newest programs, from 0 to 1."""

    share: float
    window: int

    def passes(self, fitness: float, recent: Sequence[float]) -> bool:
        below = sum(other <= fitness for other in recent)
        return below >= self.share * len(recent)

    def __str__(self) -> str:
        return f"the quantile {self.share:g} of the newest {self.window}"


@dataclass(frozen=True, slots=True)
class TopOf:
    """Among the `k` fittest of the newest programs; equally fit ones pass together."""

    k: int
    window: int

    def passes(self, fitness: float, recent: Sequence[float]) -> bool:
        return sum(other > fitness for other in recent) < self.k

    def __str__(self) -> str:
        return f"the top {self.k} of the newest {self.window}"


_RELATIVE = re.compile(r"(quantile|top) (\d*\.?\d+) of (\d+)")


def gate(text: str | float) -> Gate:
    """Reads a gate: a number, `quantile 0.5 of 100`, or `top 10 of 100`.

    Raises:
      ValueError: It is none.
    """
    try:
        threshold = float(text)
    except ValueError:
        threshold = math.nan
    if math.isfinite(threshold):
        return AtLeast(threshold)
    read = _RELATIVE.fullmatch(" ".join(str(text).split()))
    if read is not None:
        kind, number, window = read[1], float(read[2]), int(read[3])
        if kind == "quantile" and number <= 1 and window:
            return Quantile(number, window)
        if kind == "top" and number == int(number) and 0 < number <= window:
            return TopOf(int(number), window)
    raise ValueError(
        f"a gate is a number, `quantile Q of N` with 0 <= Q <= 1, or `top K of N` with "
        f"1 <= K <= N; not {text!r}"
    )
