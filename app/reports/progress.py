"""Progress of a run: a pure fold over its events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from app.domain.events import (
    Admitted,
    Changed,
    Cut,
    Event,
    Failed,
    Founded,
    Improved,
    Noticed,
    Refused,
    Rerated,
    Settling,
    Validated,
)
from app.domain.search.cohort import CutReason

WINDOW = 100
"""Number of settled proposals that the rate is computed from."""
LEAST_SECONDS = 1.0
"""Shortest span that fewer than `WINDOW` settled proposals give a rate over."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run by its events up to `seq`.

    Attributes:
      seq: The last event folded in; 0 before the first.
      done: Settled proposals of the budget.
      measured: Settled proposals that were measured and offered to the archive.
      entered: Those of them that a cell of the archive took.
      cuts: Cut ones by reason.
      failures: Failed ones by failure kind.
      failures_since_best: Those that failed since the best fitness last rose.
      best: Fitness that the best program has now, seeds included; None before the first.
      best_before: The best fitness before the newest improvement; None before the second.
      start: The highest fitness of a seed; None before one was measured.
      best_at: Number of proposals settled when the best program was found.
      improvements: How often the best fitness rose.
      validated: Programs that validation has measured.
      notices: Texts for the user since the fold began.
      recent: When each of the last `WINDOW` proposals settled, in seconds after the run's creation.
    """

    seq: int = 0
    done: int = 0
    measured: int = 0
    entered: int = 0
    cuts: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    failures_since_best: Mapping[str, int] = field(default_factory=dict)
    best: float | None = None
    best_before: float | None = None
    start: float | None = None
    best_at: int = 0
    improvements: int = 0
    recent: tuple[float, ...] = ()
    validated: int = 0
    notices: tuple[str, ...] = ()

    @property
    def told_apart(self) -> tuple[float | None, ...]:
        """The fitness values that differ in every text of the run; see `number_texts`."""
        return self.best, self.start

    def rate(self, now_seconds: float) -> float | None:
        """Returns settled proposals per second; None while too few have settled.

        The rate is that of the last `WINDOW` proposals.  Fewer give one only if they are some time
        apart: proposals settled in one transaction are separated by microseconds.

        Args:
          now_seconds: Seconds since the run was created: the rate of a run that settles nothing
            falls.
        """
        if len(self.recent) < 2:
            return None
        span = max(now_seconds, self.recent[-1]) - self.recent[0]
        least = 0.0 if len(self.recent) == WINDOW else LEAST_SECONDS
        return (len(self.recent) - 1) / span if span > least else None

    def eta_seconds(self, budget: int, now_seconds: float) -> float | None:
        """Returns the time the rest of the budget takes at this rate; None while it is unknown."""
        rate = self.rate(now_seconds)
        return max(budget - self.done, 0) / rate if rate else None


def fold(before: Progress, events: Iterable[Event]) -> Progress:
    """Returns the progress after further events, given in their order."""
    after = before
    for event in events:
        after = replace(_after(after, event), seq=event.seq)
    return after


def _after(before: Progress, event: Event) -> Progress:
    """Returns the progress after an event, but for `seq`."""
    match event.fact:
        case Improved(fitness=fitness, settled=settled):
            return replace(
                before,
                best=fitness,
                best_before=before.best,
                best_at=settled,
                improvements=before.improvements + 1,
                failures_since_best={},
            )
        case Rerated(fitness=fitness):
            return replace(before, best=fitness)
        case Founded(fitness=fitness):
            start = fitness if before.start is None else max(before.start, fitness)
            return replace(before, start=start)
        case Validated():
            return replace(before, validated=before.validated + 1)
        case Noticed(text=text):
            return replace(before, notices=(*before.notices, text))
        case Changed() as change:
            return replace(before, notices=(*before.notices, f"changed {change.text}"))
        case Admitted() | Refused() | Cut() | Failed() as fact if _of_budget(fact):
            return _settled(before, event, fact)
        case _:
            return before


def _of_budget(fact: Settling) -> bool:
    """Returns whether the budget counts the proposal.

    It counts no seeds, no re-admitted incumbents, and nothing that was given back.
    """
    returned = isinstance(fact, Cut) and fact.why is CutReason.RETURNED
    return fact.proposal is not None and fact.proposal >= 0 and not returned


def _settled(before: Progress, event: Event, fact: Settling) -> Progress:
    failures, since_best = before.failures, before.failures_since_best
    cuts = before.cuts
    if isinstance(fact, Cut):
        cuts = {**cuts, fact.why: cuts.get(fact.why, 0) + 1}
    if isinstance(fact, Failed):
        kind = fact.failure
        failures = {**failures, kind: failures.get(kind, 0) + 1}
        since_best = {**since_best, kind: since_best.get(kind, 0) + 1}
    return replace(
        before,
        done=before.done + 1,
        measured=before.measured + isinstance(fact, Admitted | Refused),
        entered=before.entered + isinstance(fact, Admitted),
        cuts=cuts,
        failures=failures,
        failures_since_best=since_best,
        recent=(*before.recent, event.seconds)[-WINDOW:],
    )
