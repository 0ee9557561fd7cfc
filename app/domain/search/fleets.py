"""Fleets: the workers that serve a step of a run, and how much may be planned for each.

A step without a label is served by any worker of its queue, `gpu` or `cpu`.  A step with a label is
served by the workers of the queue `gpu:LABEL` or `cpu:LABEL` alone.  The label of a step is drawn
when it is planned, and stored with it.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, TypeAlias

FleetKind: TypeAlias = Literal["gpu", "cpu"]
UNSERVED = 4
"""Most proposals in flight at a fleet without a worker, beside others of the run: enough to show
that it is wanted."""
_QUEUE = re.compile(r"(?P<kind>gpu|cpu)(:(?P<label>[a-z0-9][a-z0-9._-]{0,39}))?")
_FORM = (
    "write `gpu` or `cpu`, and after a colon the label: 1 to 40 of a-z, 0-9, `.`, `_` and `-`, "
    "with a letter or a digit first, as gpu:llama70b"
)


def queue_of(kind: str, label: str) -> str:
    """Returns the queue that the workers of a fleet serve."""
    return f"{kind}:{label}" if label else kind


def kind_of(queue: str) -> str:
    """Returns the kind of a queue: what stands before its label."""
    return queue.partition(":")[0]


def label_of(queue: str) -> str:
    """Returns the label of a queue; "" without one."""
    return queue.partition(":")[2]


def fleet_name(text: str, *kinds: FleetKind) -> str:
    """Returns the name of a fleet, which is that of its queue.

    Args:
      text: The name.
      kinds: The kinds that it may have; any if none is given.

    Raises:
      ValueError: It is no name of a fleet of these kinds.
    """
    found = _QUEUE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} names no fleet: {_FORM}")
    if kinds and found["kind"] not in kinds:
        raise ValueError(f"{text!r} is no fleet of the kind `{'` or `'.join(kinds)}`")
    return text


@dataclass(frozen=True, slots=True)
class FleetRules:
    """The labels of the fleets that serve a run; "" for workers without a label.

    Attributes:
      islands: Of generations, which islands take in turn; () where the models decide.
      models: Label to the weight of the models that write children; a single one without `islands`
        where all are of one fleet.
      trials: Of evaluations, which islands take in turn; at least one.
      judges: Of the judges' steps; None where the run has no judges.
    """

    islands: tuple[str, ...] = ()
    models: Mapping[str, float] = field(default_factory=lambda: {"": 1.0})
    trials: tuple[str, ...] = ("",)
    judges: str | None = None

    @property
    def generating(self) -> tuple[str, ...]:
        """The labels of generations, each once."""
        return tuple(dict.fromkeys(self.islands or self.models))

    @property
    def evaluating(self) -> tuple[str, ...]:
        """The labels of evaluations, each once."""
        return tuple(dict.fromkeys(self.trials))

    @property
    def judging(self) -> str:
        """The label of the judges' steps."""
        return self.judges or ""

    @property
    def queues(self) -> list[str]:
        """The queues of the run's steps, each once."""
        asking = (*self.generating, *(() if self.judges is None else (self.judges,)))
        gpu = [queue_of("gpu", label) for label in asking]
        return list(dict.fromkeys([*gpu, *(queue_of("cpu", label) for label in self.trials)]))

    @property
    def divided(self) -> bool:
        """Whether the steps of one stage go to different fleets."""
        return len(self.generating) > 1 or len(self.evaluating) > 1

    @property
    def drawn(self) -> bool:
        """Whether the fleet of a generation is drawn by the weights of models."""
        return not self.islands and len(self.models) > 1

    def generation(self, island: int, rng: Callable[[], Random]) -> str:
        """Returns the label of the fleet that generates a cohort of an island.

        Args:
          island: The island.
          rng: Returns what draws the fleet; called where `drawn`.
        """
        if self.islands:
            return self.islands[island % len(self.islands)]
        labels = list(self.models)
        return rng().choices(labels, [*self.models.values()])[0] if self.drawn else labels[0]

    def trial(self, island: int) -> str:
        """Returns the label of the fleet that evaluates the programs of an island."""
        return self.trials[island % len(self.trials)]

    def of_run_inside(self, label: str, island: int) -> list[str]:
        """Returns the fleets of a run inside: those of the proposal that it finds the child of.

        There are none where no step of the run has a label.
        """
        if not any((*self.generating, *self.trials)):
            return []
        return [queue_of("gpu", label), queue_of("cpu", self.trial(island))]


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """One stage of a run at one fleet.

    Attributes:
      in_flight: Proposals in the stage.
      places: Of its live workers; 0 without any.
      share: Of the stage's limit that the fleet has, relative to the others.
    """

    in_flight: int
    places: int
    share: float


@dataclass(frozen=True, slots=True)
class Room:
    """How many proposals may be planned: in all, and for the fleets of each stage.

    Attributes:
      total: In all.
      generating, evaluating: By label; a label that is absent has no bound of its own.
    """

    total: int
    generating: Mapping[str, int] = field(default_factory=dict)
    evaluating: Mapping[str, int] = field(default_factory=dict)

    def of(self, generating: str, evaluating: str) -> int:
        """Returns how many proposals may be planned for a pair of fleets."""
        return min(
            self.total,
            self.generating.get(generating, self.total),
            self.evaluating.get(evaluating, self.total),
        )

    def without(self, generating: str, evaluating: str, proposals: int) -> "Room":
        """Returns what is left when so many proposals are planned for a pair of fleets."""
        left = {
            label: n - proposals * (label == generating) for label, n in self.generating.items()
        }
        tests = {
            label: n - proposals * (label == evaluating) for label, n in self.evaluating.items()
        }
        return replace(self, total=self.total - proposals, generating=left, evaluating=tests)


def bounds(limit: int, loads: Mapping[str, FleetLoad], *, least: int = 1) -> dict[str, int]:
    """Returns how many proposals each fleet of a run may have in flight.

    Each has its share of the stage's limit among the fleets that are served; one that is not has
    `UNSERVED`.

    Args:
      limit: Of the stage.
      loads: By label.
      least: Proposals that must fit in any case: those of one cohort.
    """
    total = sum(load.share for load in loads.values() if load.places)
    return {
        label: max(
            least, UNSERVED, math.ceil(limit * load.share / total) if load.places and total else 0
        )
        for label, load in loads.items()
    }


def free(bound: Mapping[str, int], loads: Mapping[str, FleetLoad]) -> dict[str, int]:
    """Returns how many more proposals may be planned for each fleet; negative beyond its bound."""
    return {label: bound[label] - load.in_flight for label, load in loads.items()}


def stuck(bound: Mapping[str, int], loads: Mapping[str, FleetLoad]) -> int:
    """Returns the proposals of a stage that stop no other: beyond a bound, or without a worker."""
    return sum(
        max(0, load.in_flight - bound[label]) if load.places else load.in_flight
        for label, load in loads.items()
    )


def waiting_text(unserved: Mapping[str, int]) -> str:
    """Returns what waits at queues that no worker serves, and what serves them; "" for nothing.

    Args:
      unserved: Queue to the number of steps that wait there.
    """
    texts = []
    for queue, n in sorted(unserved.items()):
        noun = "trial" if kind_of(queue) == "cpu" else "proposal"
        waits = f"{noun} waits" if n == 1 else f"{noun}s wait"
        texts.append(
            f"{n} {waits} for a worker of {queue}; start one with `celery -A app worker -Q {queue}`"
        )
    return "; ".join(texts)


def labels(fleets: Sequence[str], kind: FleetKind) -> tuple[str, ...]:
    """Returns the labels of the fleets of one kind, in order."""
    return tuple(label_of(name) for name in fleets if kind_of(name) == kind)
