"""The size of fleets: how many workers of each queue running runs can use, and why.

By Little's law (L = λ W) a run with L proposals in flight, none of which waits for a place, settles
λ = L / W of them a second, where W is the time of a proposal in all stages.  A stage that takes w
of it has λ w steps at work.  So the fleets of all stages are sized for the same rate: one worker
more of one of them would wait for the others.

Source: Little, "A Proof for the Queuing Formula: L = λ W", Operations Research 9 (3), 1961.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_ROUNDING = 1e-9
"""Relative; so that 32.00000001 steps at work fit into 32 places."""


def fleet_name(queue: str, tag: str) -> str:
    """Returns the name of a fleet: its queue, and its tag after a colon."""
    return f"{queue}:{tag}" if tag else queue


@dataclass(frozen=True, slots=True)
class Load:
    """A running run, as far as the size of fleets follows from it.

    Attributes:
      in_flight: Proposals that it may have in flight, however many places there are.
      left: Proposals that have not settled, planned or not.
      seconds: Mean time of a proposal at each fleet; None where nothing is measured.
      places: Its demand at each fleet, as the ledger counts it.
      most: Steps that each fleet may still get; a fleet that is absent gets no other.
    """

    name: str
    in_flight: int
    left: int
    seconds: Mapping[str, float] | None
    places: Mapping[str, int]
    most: Mapping[str, int]

    @property
    def proposal_seconds(self) -> float:
        """Mean time of a proposal in all stages together; 0 where nothing is measured."""
        return sum((self.seconds or {}).values())

    @property
    def per_second(self) -> float:
        """Proposals that settle in a second if none waits for a place; 0 where not measured."""
        return self.in_flight / self.proposal_seconds if self.proposal_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one queue and tag.

    Attributes:
      workers: Live ones.
      places: Of one of them; > 0; None where it is not known.
      usd_per_hour: The price of one; None where it is not known.
    """

    queue: str
    tag: str = ""
    workers: int = 0
    places: float | None = None
    usd_per_hour: float | None = None

    @property
    def name(self) -> str:
        return fleet_name(self.queue, self.tag)


@dataclass(frozen=True, slots=True)
class Goal:
    """The limits of the fleets.

    Attributes:
      deadline_seconds: Time in which every run is to end; > 0; None: as soon as it can.
      usd_per_hour: Most dollars an hour, of all fleets together; None: no such limit.
      most: Most workers of each fleet; a fleet that is absent has no limit.
    """

    deadline_seconds: float | None = None
    usd_per_hour: float | None = None
    most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The advice for one fleet.

    Attributes:
      replicas: Workers that it should have; `workers` are those that it has.
      demand: Places that the ledger's demand asks for.
      at_work: Mean number of steps at work at that size.
      places: Of one worker; None where it is not known.
      usd_per_hour: Price of all `replicas`; None where it is not known.
      why: The reason, in a line.
    """

    queue: str
    tag: str
    replicas: int
    workers: int
    demand: int
    at_work: float
    places: float | None
    usd_per_hour: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Sizing:
    """The advice for all fleets.

    Attributes:
      per_second: Proposals that settle in a second at that size; 0 where nothing is measured.
      ends_in_seconds: Time until each run has settled its budget; None where it is not known.
      late: The runs that end after the deadline.
      usd_per_hour: Of all fleets; None where a price is not known.
      too_dear: Whether one worker of each fleet that is asked for already exceeds the limits.
    """

    fleets: tuple[FleetSize, ...]
    per_second: float
    ends_in_seconds: Mapping[str, float | None]
    late: tuple[str, ...]
    usd_per_hour: float | None
    too_dear: bool


def sized(loads: Sequence[Load], fleets: Sequence[Fleet], goal: Goal) -> Sizing:
    """Returns the size of each fleet: the highest rate that the goal allows, and no worker more.

    A deadline makes the fleets as small as it allows.  Where a limit holds one fleet back, all have
    the size for the rate that is left.  A run of which nothing is measured has what its demand asks
    for.

    Raises:
      ValueError: Dollars limit the fleets, and a worker of one that is asked for has no price.
    """
    rates = {load.name: load.per_second * _needed(load, goal) for load in loads}
    works = [_Work.of(fleet, loads, rates) for fleet in fleets]
    if goal.usd_per_hour is not None:
        unpriced = [w.fleet.name for w in works if w.asked and w.fleet.usd_per_hour is None]
        if unpriced:
            raise ValueError(f"no price of a worker is known: {', '.join(unpriced)}")
    shares = sorted({1.0, *(share for work in works for share in work.shares())}, reverse=True)
    limits = [(share, _limit(works, goal, share)) for share in shares]
    chosen = next((share for share, limit in limits if not limit), shares[-1])
    held = next((one for (_, one), (share, _) in pairwise(limits) if share == chosen), "")
    sizes = tuple(work.size(chosen, held) for work in works)
    ends = {load.name: _ends(load, rates[load.name] * chosen) for load in loads}
    deadline = goal.deadline_seconds or math.inf
    prices = [size.usd_per_hour for size in sizes if size.usd_per_hour is not None]
    return Sizing(
        sizes,
        sum(rates.values()) * chosen,
        ends,
        tuple(n for n, end in ends.items() if end is not None and end > deadline * (1 + _ROUNDING)),
        sum(prices) if len(prices) == len(sizes) else None,
        all(limit for _, limit in limits),
    )


def _needed(load: Load, goal: Goal) -> float:
    """Returns the share of a run's highest rate that its deadline needs; at most 1."""
    if goal.deadline_seconds is None or not load.per_second:
        return 1.0
    seconds = goal.deadline_seconds - load.proposal_seconds
    return min(1.0, load.left / (load.per_second * seconds)) if seconds > 0 else 1.0


def _ends(load: Load, per_second: float) -> float | None:
    """Returns the time until a run has settled its budget at a rate; None where there is none."""
    return load.left / per_second + load.proposal_seconds if per_second else None


def _limit(works: Sequence["_Work"], goal: Goal, share: float) -> str:
    """Returns the limit that fleets for a share of the rates exceed; "" where they exceed none."""
    usd = 0.0
    for work in works:
        replicas = work.replicas(share)
        most = goal.most.get(work.fleet.name, math.inf)
        if replicas > most:
            return f"the most of {work.fleet.name} is {most:g}"
        usd += replicas * (work.fleet.usd_per_hour or 0.0)
    if goal.usd_per_hour is not None and usd > goal.usd_per_hour * (1 + _ROUNDING):
        return f"${goal.usd_per_hour:g} an hour allow no more"
    return ""


@dataclass(frozen=True, slots=True)
class _Work:
    """What one fleet has to do.

    Attributes:
      per_second: Rate of the measured runs.
      measured: Steps at work at that rate.
      unmeasured: Demand of the runs of which nothing is measured.
      demand: Of all runs.
    """

    fleet: Fleet
    per_second: float
    measured: float
    unmeasured: int
    demand: int

    @classmethod
    def of(cls, fleet: Fleet, loads: Sequence[Load], rates: Mapping[str, float]) -> "_Work":
        name, measured, per_second, unmeasured = fleet.name, 0.0, 0.0, 0
        for load in loads:
            most = load.most.get(name, 0)
            if rates[load.name] and most:
                seconds = (load.seconds or {}).get(name, 0.0)
                measured += min(rates[load.name] * seconds, most)
                per_second += rates[load.name]
            elif not rates[load.name]:
                unmeasured += load.places.get(name, 0)
        demand = sum(load.places.get(name, 0) for load in loads)
        return cls(fleet, per_second, measured, unmeasured, demand)

    @property
    def asked(self) -> bool:
        return bool(self.per_second or self.unmeasured or self.demand)

    def replicas(self, share: float) -> int:
        """Returns the workers for a share of the rates: at least one where there is any work."""
        at_work = self.measured * share + self.unmeasured
        places = self.fleet.places
        enough = math.ceil(at_work / places * (1 - _ROUNDING)) if places else 1
        return max(1, enough) if self.asked else 0

    def shares(self) -> Iterator[float]:
        """Yields the shares of the rates that fill a whole number of workers."""
        places = self.fleet.places
        if places and self.measured:
            for replicas in range(1, self.replicas(1.0)):
                share = (replicas * places - self.unmeasured) / self.measured
                if 0.0 < share < 1.0:
                    yield share

    def size(self, share: float, held: str) -> FleetSize:
        replicas, price = self.replicas(share), self.fleet.usd_per_hour
        return FleetSize(
            self.fleet.queue,
            self.fleet.tag,
            replicas,
            self.fleet.workers,
            self.demand,
            self.measured * share + self.unmeasured,
            self.fleet.places,
            0.0 if not replicas else None if price is None else replicas * price,
            self._why(share, f"; {held}" if held and share < 1.0 else ""),
        )

    def _why(self, share: float, held: str) -> str:
        if not self.asked:
            return "no running run has work for it"
        places = self.fleet.places
        each = f"{places:g} places a worker" if places else "the places of a worker are not known"
        if not self.per_second:
            return f"nothing measured yet; demand of {self.demand}, {each}{held}"
        rate, at_work = self.per_second * share, self.measured * share
        law = f"{rate:.3g}/s × {at_work / rate:.3g} s = {at_work:.3g} at work"
        more = f", and {self.unmeasured} of runs without measurements" if self.unmeasured else ""
        return f"{law}{more}, {each}{held}"
