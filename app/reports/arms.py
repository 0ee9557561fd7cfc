"""The arms of a comparison: search methods that spent the same budget on the same problems."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from app.domain.finite import median
from app.reports.metrics import MetricsRow

Settings: TypeAlias = Mapping[str, Mapping[str, object]]
"""JSON values by the section and the name of a setting, or by its key and the arm."""
NORMAL_95 = 1.959964
"""The 97.5 % quantile of the normal distribution."""
BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class ArmRun:
    """A finished run of an arm.

    Attributes:
      curve: Highest fitness after 0, 1, … settled proposals, up to the budget.  A run that stopped
        earlier keeps its last value; where the seeds settle after the first children, the curve
        begins with the first fitness that was measured.
      evaluated: Proposals whose program was evaluated.
      seconds: From the run's creation to its last settled proposal.
      cost_usd: None where no price is known.
    """

    run: str
    seed: int
    curve: tuple[float, ...]
    evaluated: int
    seconds: float
    tokens: int
    cost_usd: float | None

    @property
    def end(self) -> float:
        return self.curve[-1]


@dataclass(frozen=True, slots=True)
class Superiority:
    """The probability that a run of one arm ends higher than a run of another, ties halved.

    Attributes:
      low, high: Its 95 % interval.
    """

    probability: float
    low: float
    high: float

    @property
    def text(self) -> str:
        return f"{self.probability:.2f} [{self.low:.2f}, {self.high:.2f}]"


def superiority(ours: Sequence[float], theirs: Sequence[float]) -> Superiority:
    """Returns how probably one of `ours` is above one of `theirs`: Vargha and Delaney's A.

    Sources: Vargha & Delaney 2000 for the measure; the interval is method 5 of Newcombe 2006, a
    score interval, which has a width where every one of few runs wins as well.

    Args:
      ours: Final fitness of each run, at least one.
      theirs: The same of the other arm.
    """
    m, n = len(ours), len(theirs)
    above = sum(a > b for a in ours for b in theirs) / (m * n)
    at_least = sum(a >= b for a in ours for b in theirs) / (m * n)
    estimate = (above + at_least) / 2
    kin = (m + n) / 2 - 1

    def distance(theta: float) -> float:
        """Returns the distance to the estimate in units of the interval's half width."""
        variance = theta * (1 - theta) / (m * n)
        variance *= 1 + kin * (1 - theta) / (2 - theta) + kin * theta / (1 + theta)
        return abs(theta - estimate) - NORMAL_95 * math.sqrt(variance)

    def bound(outer: float) -> float:
        inner = estimate
        for _ in range(BISECTIONS):
            middle = (outer + inner) / 2
            outer, inner = (middle, inner) if distance(middle) > 0 else (outer, middle)
        return inner

    return Superiority(estimate, bound(0.0), bound(1.0))


def arm_run(name: str, seed: int, budget: int, table: Sequence[MetricsRow]) -> ArmRun | None:
    """Returns a run as one of an arm; None where nothing has been measured.

    Args:
      name: The run's.
      seed: Of its random draws.
      budget: Its proposals.
      table: Its settled proposals, seeds among them, in the order of settling.
    """
    best = next((line.best_so_far for line in table if line.best_so_far is not None), None)
    if best is None:
        return None
    curve: list[float] = []
    for line in table:
        if line.ordinal >= 0 and not curve:
            curve.append(best)
        best = best if line.best_so_far is None else line.best_so_far
        if line.ordinal >= 0:
            curve.append(best)
    curve += [best] * (1 + budget - len(curve))
    children = [line for line in table if line.ordinal >= 0]
    costs = [line.cost_usd for line in table if line.cost_usd is not None]
    return ArmRun(
        run=name,
        seed=seed,
        curve=tuple(curve),
        evaluated=sum(line.wall_seconds > 0 for line in children),
        seconds=max(line.seconds for line in table),
        tokens=sum(line.tokens for line in table),
        cost_usd=sum(costs) if costs else None,
    )


@dataclass(frozen=True)
class ProblemComparison:
    """The arms on one problem.

    Attributes:
      arms: The finished runs of each arm, in the order in which the arms were given.
      null: The arm that selects nothing.
    """

    problem: str
    arms: Mapping[str, tuple[ArmRun, ...]]
    null: str

    @cached_property
    def measured(self) -> Mapping[str, tuple[ArmRun, ...]]:
        """The arms that have a finished run."""
        return {arm: runs for arm, runs in self.arms.items() if runs}

    @cached_property
    def target(self) -> float | None:
        """The fitness that the null arm ends with in the median; None without a run of it."""
        ends = [run.end for run in self.arms.get(self.null, ())]
        return median(ends) if ends else None

    def superiority(self, ours: str, theirs: str) -> Superiority:
        """Returns how probably a run of one arm ends above one of the other."""
        return superiority(
            [run.end for run in self.measured[ours]], [run.end for run in self.measured[theirs]]
        )

    def to_target(self, arm: str) -> int | None:
        """Returns the median of proposals until `target`; None where the median never gets there.

        Without selection, a search spends as many proposals as it has.
        """
        return None if self.target is None else self.to(self.target, arm)

    def to(self, fitness: float, arm: str) -> int | None:
        """Returns the median of proposals until a fitness; None where the median never has it."""
        firsts = [_first_at(run.curve, fitness) for run in self.measured[arm]]
        middle = statistics.median(firsts)
        return round(middle) if math.isfinite(middle) else None

    def sentences(self) -> Iterator[str]:
        """Yields what the first arm is worth beside each other one, in words."""
        subject, *others = self.measured or [""]
        for other in others:
            above = self.superiority(subject, other)
            shares = f"{_percent(above.probability)} of pairs, 95 % interval "
            shares += f"{_percent(above.low)} to {_percent(above.high)}"
            if above.low > 0.5:
                yield f"On {self.problem}, {subject} ends above {other} ({shares})."
            elif above.high < 0.5:
                yield f"On {self.problem}, {subject} ends below {other} (above it in {shares})."
            else:
                yield (
                    f"On {self.problem}, no difference between {subject} and {other} is shown "
                    f"({subject} ends above in {shares})."
                )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arms on problems, with the same budget and the same seeds.

    Attributes:
      budget: Proposals of each run.
      differing: Settings that are not the same in all arms, with the value that each arm has.
      unfinished: Runs that are left out, with their states.
    """

    name: str
    budget: int
    problems: tuple[ProblemComparison, ...]
    differing: Settings
    unfinished: Mapping[str, str]


def differing(settings: Mapping[str, Settings]) -> dict[str, dict[str, object]]:
    """Returns the settings that are not the same in all arms, by key.

    Args:
      settings: Each arm's, as a run stores them: values by name in sections.
    """
    flat = {
        arm: {f"{s}.{name}": v for s, values in sections.items() for name, v in values.items()}
        for arm, sections in settings.items()
    }
    keys = sorted({key for values in flat.values() for key in values})
    table = {key: {arm: values.get(key) for arm, values in flat.items()} for key in keys}
    return {
        key: values
        for key, values in table.items()
        if len({json.dumps(value, sort_keys=True, default=str) for value in values.values()}) > 1
    }


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _first_at(curve: Sequence[float], target: float) -> float:
    return next((float(n) for n, best in enumerate(curve) if best >= target), float("inf"))
