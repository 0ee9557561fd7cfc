"""Comparison of arms: search methods that spent the same budget on the same problems and seeds."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from app.domain.digits import number_texts
from app.domain.finite import mean, median, quantile
from app.reports.decoration import NotMade, attempt
from app.reports.documents import to_json
from app.reports.folder import Drawn, drawn, plots
from app.reports.metrics import MetricsRow
from app.reports.page import code, page, row, rule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    a, b = np.asarray(ours), np.asarray(theirs)
    above, at_least = np.greater.outer(a, b), np.greater_equal.outer(a, b)
    estimate = float((above.mean() + at_least.mean()) / 2)
    m, n = len(a), len(b)
    kin = (m + n) / 2 - 1

    def distance(theta: float) -> float:
        """Returns the distance to the estimate in units of the interval's half width."""
        variance = theta * (1 - theta) / (m * n)
        variance *= 1 + kin * (1 - theta) / (2 - theta) + kin * theta / (1 + theta)
        return abs(theta - estimate) - NORMAL_95 * float(np.sqrt(variance))

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
        middle = float(np.median([_first_at(run.curve, fitness) for run in self.measured[arm]]))
        return round(middle) if np.isfinite(middle) else None

    def sentences(self) -> Iterator[str]:
        """Yields what the first arm is worth beside each other one, in words."""
        subject, *others = self.measured or [""]
        for other in others:
            found = self.superiority(subject, other)
            shares = f"{_percent(found.probability)} of pairs, 95 % interval "
            shares += f"{_percent(found.low)} to {_percent(found.high)}"
            if found.low > 0.5:
                yield f"On {self.problem}, {subject} ends above {other} ({shares})."
            elif found.high < 0.5:
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


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Quartiles and median of the final fitness of an arm's runs."""

    q25: float
    median: float
    q75: float


@dataclass(frozen=True, slots=True)
class ArmDocument:
    """An arm on a problem; see `ProblemComparison`.

    Attributes:
      mean_of_best: Median over the runs of the mean of their curves.
      proposals_to_target: None where the median never has the target.
    """

    end: Quartiles
    mean_of_best: float
    proposals_to_target: int | None
    runs: tuple[ArmRun, ...]


@dataclass(frozen=True, slots=True)
class SuperiorityDocument:
    """How probably a run of `arm` ends above one of `over`, with its 95 % interval."""

    arm: str
    over: str
    probability: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ProblemDocument:
    """The arms on one problem; see `ProblemComparison`."""

    problem: str
    null_arm: str
    target: float | None
    arms: dict[str, ArmDocument]
    superiority: list[SuperiorityDocument]
    sentences: list[str]


@dataclass(frozen=True, slots=True)
class ComparisonDocument:
    """A comparison as `comparison.json` and `evoq compare --json` have it; see `Comparison`."""

    comparison: str
    budget: int
    problems: list[ProblemDocument]
    differing_settings: Settings
    unfinished: Mapping[str, str]


def document(comparison: Comparison) -> ComparisonDocument:
    """Returns the comparison as a document; curves have one value for each settled proposal."""
    return ComparisonDocument(
        comparison.name,
        comparison.budget,
        [_problem_document(one) for one in comparison.problems],
        comparison.differing,
        comparison.unfinished,
    )


def _problem_document(problem: ProblemComparison) -> ProblemDocument:
    measured = problem.measured
    return ProblemDocument(
        problem.problem,
        problem.null,
        problem.target,
        {
            arm: ArmDocument(_quartiles(runs), _mean_of_best(runs), problem.to_target(arm), runs)
            for arm, runs in measured.items()
        },
        [
            SuperiorityDocument(ours, theirs, found.probability, found.low, found.high)
            for ours in measured
            for theirs in measured
            if ours != theirs
            for found in [problem.superiority(ours, theirs)]
        ],
        list(problem.sentences()),
    )


def markdown(comparison: Comparison, missing: Sequence[NotMade] = ()) -> str:
    """Returns the comparison as Markdown, with a picture for each problem beside it.

    Args:
      comparison: With its results.
      missing: Pictures that could not be drawn, in whose place the reason stands.
    """
    why = {each.name: code(each.text) for each in missing}
    lines = [
        f"# Comparison {comparison.name}",
        "",
        f"Each run had {comparison.budget} proposals. Fitness: higher is better.",
        "",
    ]
    for problem in comparison.problems:
        lines += [f"## {problem.problem}", "", *(f"* {text}" for text in problem.sentences()), ""]
        name = picture(problem)
        lines += [*_table(problem), "", why.get(name, f"![{problem.problem}]({name})"), ""]
    if comparison.differing:
        arms = list(next(iter(comparison.differing.values())))
        lines += ["## Settings that differ", "", row(("setting", *arms)), rule(1 + len(arms))]
        for key, values in comparison.differing.items():
            cells = ("" if values[arm] is None else json.dumps(values[arm]) for arm in arms)
            lines.append(row((key, *cells)))
        lines.append("")
    if comparison.unfinished:
        lines += ["## Runs that are left out", ""]
        lines += [f"* {run}: {state}" for run, state in comparison.unfinished.items()] + [""]
    return "\n".join([*lines, *_NOTES, ""])


_NOTES = (
    "## How to read this",
    "",
    "* *end*: the highest fitness of a run: median and quartiles over the runs of the arm.",
    "* *mean of best*: the area under the curve of the best so far, divided by the budget.",
    "* *to target*: proposals until a run has the fitness that the null arm ends with in the "
    "median; the median over runs. A dash: most runs never have it.",
    "* *first arm above it*: the probability that a run of the first arm ends above a run of this "
    "one, ties halved (Vargha and Delaney's A), with its 95 % interval (Newcombe's method 5). An "
    "interval that holds 0.5 shows no difference.",
)


def _table(problem: ProblemComparison) -> Iterator[str]:
    head = ("arm", "runs", "end", "mean of best", "to target", "evaluated", "seconds")
    yield row((*head, "tokens", "first arm above it"))
    yield rule(len(head) + 2)
    subject = next(iter(problem.measured), "")
    quartiles = [astuple(_quartiles(runs)) for runs in problem.measured.values()]
    starts = [run.curve[0] for runs in problem.measured.values() for run in runs]
    ends = number_texts([end for each in quartiles for end in each], starts)
    means = number_texts([_mean_of_best(runs) for runs in problem.measured.values()], starts)
    for n, (arm, runs) in enumerate(problem.measured.items()):
        low, middle, high = ends[3 * n : 3 * n + 3]
        reached = problem.to_target(arm)
        yield row(
            (
                f"{arm} (null arm)" if arm == problem.null else arm,
                str(len(runs)),
                f"{middle} [{low}, {high}]",
                means[n],
                "–" if reached is None else str(reached),
                f"{median([run.evaluated for run in runs]):g}",
                f"{median([run.seconds for run in runs]):.0f}",
                f"{median([run.tokens for run in runs]):g}",
                "" if arm == subject else problem.superiority(subject, arm).text,
            )
        )


def write(comparison: Comparison, folder: Path) -> Drawn:
    """Writes `comparison.json`, `.md` and `.html` and a picture for each problem.

    A picture or a text that cannot be made is left out; `comparison.json` holds everything.

    Raises:
      OSError: `comparison.json` cannot be written.
    """
    results = folder / "comparison.json"
    text = json.dumps(to_json(document(comparison)), indent=1, allow_nan=False) + "\n"
    results.write_text(text, encoding="utf-8")
    pictures = drawn(
        {folder / picture(one): partial(_arms, one, comparison.name) for one in comparison.problems}
    )
    texts = {
        "comparison.md": lambda: markdown(comparison, pictures.missing),
        "comparison.html": lambda: page(
            f"Comparison {comparison.name}",
            markdown(comparison, pictures.missing),
            pictures.files,
        ),
    }
    files, missing = [results], list(pictures.missing)
    for name, make in texts.items():
        found = attempt(name, partial(_write, make, folder / name))
        if isinstance(found, NotMade):
            missing.append(found)
        else:
            files.append(folder / name)
    return Drawn([*files, *pictures.files], missing)


def _arms(problem: ProblemComparison, comparison: str) -> "Figure":
    curves = {arm: [run.curve for run in runs] for arm, runs in problem.measured.items()}
    figure: Figure = plots().arms(curves, f"{problem.problem}: {comparison}")
    return figure


def _write(make: Callable[[], str], path: Path) -> None:
    path.write_text(make(), encoding="utf-8")


def picture(problem: ProblemComparison) -> str:
    """Returns the name of a problem's picture."""
    return f"{problem.problem}.png"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _first_at(curve: Sequence[float], target: float) -> float:
    return next((float(n) for n, best in enumerate(curve) if best >= target), float("inf"))


def _mean_of_best(runs: Sequence[ArmRun]) -> float:
    return median([mean(run.curve) for run in runs])


def _quartiles(runs: Sequence[ArmRun]) -> Quartiles:
    ends = [run.end for run in runs]
    return Quartiles(quantile(ends, 0.25), median(ends), quantile(ends, 0.75))
