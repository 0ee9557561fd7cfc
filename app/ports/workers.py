"""Worker processes: the places that they have, and the seconds that they spent, by run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.domain.scaling import Fleet

WORKER_KINDS = ("gpu", "cpu", "control")
LIVE_SECONDS = 20.0
"""Time since its last report for which a worker counts as live: several of its intervals."""
PRESENT_SECONDS = 7.0
"""Time since its last report after which a run is said to wait for a worker."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process from its start to its end.

    Attributes:
      id: Unique; another start is another worker.
      kind: The first of `WORKER_KINDS` whose queue it serves.
      usd_per_hour: What it costs, busy or not; None where no price is set.
      settings: What it applies of the settings that workers own, by dotted key.
      protections: What a sandbox of it reported when it booted, each protection with the remedy
        that it takes, "" where it is on; None where none has booted.
      fault: Why it evaluates nothing now; "" where it works.
      queues: Those that it serves, with the labels of fleets.
    """

    id: str
    kind: str
    usd_per_hour: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    protections: tuple[tuple[str, str], ...] | None = None
    fault: str = ""
    queues: tuple[str, ...] = WORKER_KINDS


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """What a running run has for the workers of one queue; the view `demand` of the ledger.

    Attributes:
      tag: Of the workers that it asks for; "" for those without a tag.
      waiting: Steps that no worker holds; `leased` are those that one holds.
      places: Of workers, that its steps and those planned next could use at once.  At least one
        while it has budget left; 0 of a run that one process works on, or whose time is over.
    """

    run: int
    queue: str
    tag: str
    waiting: int
    leased: int
    places: int

    @property
    def steps(self) -> int:
        return self.waiting + self.leased


@dataclass(frozen=True, slots=True)
class Presence:
    """Which steps have a worker now.

    Attributes:
      generating, evaluating: Whether a worker with such places reported a few seconds ago.
      faults: Why workers of the last `LIVE_SECONDS` evaluate nothing, each reason once.
      queues: Those that a worker with places reported a few seconds ago.
    """

    generating: bool
    evaluating: bool
    faults: tuple[str, ...] = ()
    queues: frozenset[str] = field(default=frozenset(WORKER_KINDS), compare=False)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much can be at work at once, in one worker or in all live ones together.

    Attributes:
      model: Requests that may be in flight at models: what the windows of the endpoints in use
        admit now, and no more than there are threads that ask.  None where no worker that generates
        has reported.
      sandbox: Trials that may be in a sandbox.  None where no worker that evaluates has reported.
    """

    model: int | None = None
    sandbox: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """What the workers of one kind spent on one run, or on none.

    Attributes:
      seconds: Of time that a worker was there, shared among the runs it had steps of.
      cost_usd: Of those with a price; None where none has one.
      unpriced_seconds: Of those without.
    """

    kind: str
    workers: int
    seconds: float
    cost_usd: float | None
    unpriced_seconds: float = 0.0


class Workers(Protocol):
    """Worker processes: the places that they have, and the seconds that they spent, by run."""

    def record(self, worker: Worker, seconds: Mapping[int | None, float], places: Capacity) -> None:
        """Writes a worker's places, and its totals by run; smaller totals are ignored.

        Args:
          worker: The worker; it counts as live for `LIVE_SECONDS` from now.
          seconds: Its totals; None is time for no run.
          places: Its own; those of a worker that ends are None.
        """
        ...

    def capacity(self) -> Capacity:
        """Returns the places of the live workers together: one bounded read."""
        ...

    def presence(self) -> Presence:
        """Returns which steps have a worker now: one bounded read."""
        ...

    def demand(self, run: int | None = None) -> list[QueueDemand]:
        """Returns what running runs have for each queue, in order of run, queue and tag.

        Args:
          run: The one that is asked about; None for all.
        """
        ...

    def fleets(self) -> list[Fleet]:
        """Returns the workers of each queue: how many live, with their mean places, at what price.

        The price is that of the newest worker with one, live or not.
        """
        ...

    def evaluating(self) -> list[Worker]:
        """Returns the live workers that evaluate, as they last reported."""
        ...

    def live(self) -> list[Worker]:
        """Returns all live workers, as they last reported."""
        ...

    def at_work_for(self, run: int) -> list[Worker]:
        """Returns the workers that spent time on a run, and all live ones, as last reported."""
        ...

    def of_run(self, run: int) -> list[WorkerTime]:
        """Returns the time that workers spent on a run, by kind."""
        ...

    def busy(self) -> list[WorkerTime]:
        """Returns the time that workers spent on all runs together, by kind."""
        ...

    def idle(self) -> list[WorkerTime]:
        """Returns the time that workers spent on no run, by kind."""
        ...
