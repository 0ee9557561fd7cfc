"""Events: immutable facts of a run, numbered without gaps in the order of commit."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class EventKind(enum.StrEnum):
    """What happened.  Every proposal settles with exactly one of the four in the middle."""

    STARTED = "started"
    RESUMED = "resumed"
    PAUSED = "paused"

    ADMITTED = "admitted"  # the proposal took a place in a cell of its island
    REFUSED = "refused"  # it reached the cell, and the cell kept who was there
    CUT = "cut"
    FAILED = "failed"

    FOUNDED = "founded"  # a seed was offered to an island
    IMPROVED = "improved"  # a new best of the run
    NOTICED = "noticed"  # something a person should know, as `text`
    MOVED = "moved"
    REGRIDDED = "regridded"

    FINISHED = "finished"
    CANCELLED = "cancelled"
    BROKEN = "broken"  # the run failed: its seeds, its machinery


SETTLING = (EventKind.ADMITTED, EventKind.REFUSED, EventKind.CUT, EventKind.FAILED)


@dataclass(frozen=True, slots=True)
class Event:
    """One fact.

    Attributes:
      seq: 1, 2, 3 … within the run.
      seconds: After the run's creation.
      data: JSON values.
    """

    seq: int
    kind: EventKind
    seconds: float
    data: Mapping[str, Any]


def stalled_for(improvements: Sequence[Event], settled: int, threshold: float) -> int:
    """Returns how many proposals have settled since the best last rose by at least `threshold`.

    Args:
      improvements: The run's `improved` events, oldest first; `data` holds `fitness`, `settled`.
      settled: Proposals settled by now.
      threshold: Smaller rises add up but do not count alone; >= 0.  A new best that is less fit
        counts always: it was measured at more stages than the best before.
    """
    counted_at, counted = 0, None
    for event in improvements:
        fitness = event.data["fitness"]
        if counted is None or fitness < counted or fitness - counted >= threshold:
            counted_at, counted = event.data["settled"], fitness
    return settled - counted_at
