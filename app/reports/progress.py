"""Progress of a run: a pure fold over its events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.domain.events import SETTLING, Event, EventKind

WINDOW = 100
"""Settlements that the rate is taken over."""
TELLING_SECONDS = 1.0
"""What fewer settlements must be spread over before they say anything of a rate."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, by its events up to `seq`.

    Attributes:
      seq: The last event folded in; 0 before the first.
      done: Settled proposals of the budget.
      admitted: Those of them that reached a cell's door.
      failures: Failed ones by failure kind.
      best: Fitness of the best program, seeds included; None before the first.
      best_at: How many proposals had settled when it came.
      improvements: How often the best rose.
      notices: What was noticed since the fold began, one text each.
      recent: When the last `WINDOW` proposals settled, seconds after the run's creation.
    """

    seq: int = 0
    done: int = 0
    admitted: int = 0
    cut: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    best: float | None = None
    best_at: int = 0
    improvements: int = 0
    recent: tuple[float, ...] = ()
    notices: tuple[str, ...] = ()

    def rate(self, now_seconds: float) -> float | None:
        """Returns settlements a second over the last `WINDOW`; None while too few are known.

        Proposals that one transaction settles come within microseconds of each other.

        Args:
          now_seconds: After the run's creation; a run that stands still slows down by it.
        """
        if len(self.recent) < 2:
            return None
        span = max(now_seconds, self.recent[-1]) - self.recent[0]
        least = 0.0 if len(self.recent) == WINDOW else TELLING_SECONDS
        return (len(self.recent) - 1) / span if span > least else None

    def eta_seconds(self, budget: int, now_seconds: float) -> float | None:
        """Returns how long the rest of the budget takes at this rate; None while unknown."""
        rate = self.rate(now_seconds)
        return max(budget - self.done, 0) / rate if rate else None


def fold(before: Progress, events: Iterable[Event]) -> Progress:
    """Returns the progress after further events, in their order."""
    after = before
    for event in events:
        after = replace(_after(after, event), seq=event.seq)
    return after


def _after(before: Progress, event: Event) -> Progress:
    match event.kind:
        case EventKind.IMPROVED:
            return replace(
                before,
                best=event.data["fitness"],
                best_at=event.data["settled"],
                improvements=before.improvements + 1,
            )
        case EventKind.NOTICED:
            return replace(before, notices=(*before.notices, event.data["text"]))
        case kind if kind in SETTLING and _of_budget(event.data):
            return _settled(before, event)
        case _:
            return before


def _of_budget(facts: Mapping[str, Any]) -> bool:
    """Returns whether the proposal counts: seeds and re-admitted incumbents do not."""
    ordinal = facts["proposal"]
    return ordinal is not None and ordinal >= 0


def _settled(before: Progress, event: Event) -> Progress:
    failures = before.failures
    if event.kind is EventKind.FAILED:
        kind = event.data["failure"]
        failures = {**failures, kind: failures.get(kind, 0) + 1}
    return replace(
        before,
        done=before.done + 1,
        admitted=before.admitted + (event.kind in (EventKind.ADMITTED, EventKind.REFUSED)),
        cut=before.cut + (event.kind is EventKind.CUT),
        failures=failures,
        recent=(*before.recent, event.seconds)[-WINDOW:],
    )
