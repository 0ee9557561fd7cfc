"""Answers of an endpoint over a while: what its window is judged by."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """What was answered since a moment, over a round trip or more.

    Attributes:
      size: The window when it began.
      peak: Most requests in flight when one was answered.
      refused_seconds: For which refused requests were in flight, all together.
    """

    since: float
    size: float
    served: int = 0
    refused: int = 0
    peak: int = 0
    refused_seconds: float = 0.0

    @property
    def answers(self) -> int:
        return self.served + self.refused

    @property
    def share(self) -> float:
        """Refused requests among all; 0 where nothing was answered."""
        return self.refused / max(1, self.answers)

    def held_by_refused(self, now: float) -> float:
        """Returns how many places refused requests held, on average."""
        lasted = now - self.since
        return self.refused_seconds / lasted if lasted > 0 else 0.0

    def answered(
        self, in_flight: int, *, served: int = 0, refused: int = 0, refused_seconds: float = 0.0
    ) -> "SampleWindow":
        """Returns the spell after further answers, with so many requests in flight."""
        return replace(
            self,
            served=self.served + served,
            refused=self.refused + refused,
            peak=max(self.peak, in_flight),
            refused_seconds=self.refused_seconds + refused_seconds,
        )
