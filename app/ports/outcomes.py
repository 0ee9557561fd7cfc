"""Outcomes of sandbox jobs."""

from typing import Protocol

from app.domain.problem import Outcome


class Outcomes(Protocol):
    """Outcomes of sandbox jobs, kept for runs that ask for them; see `Job.reuse`."""

    def recall(self, job: str) -> Outcome | None:
        """Returns the outcome that is kept under a job's digest; None where there is none."""
        ...

    def keep(self, job: str, outcome: Outcome) -> None:
        """Keeps an outcome; one that is kept already stays.

        Raises:
          ValueError: It is a failure.
        """
        ...
