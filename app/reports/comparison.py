"""A comparison of arms as a document, as Markdown, and as files."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.domain.digits import number_texts
from app.domain.finite import mean, median, quantile
from app.reports.arms import ArmRun, Comparison, ProblemComparison, Settings
from app.reports.decoration import NotMade, attempt
from app.reports.documents import to_json
from app.reports.folder import Drawn, draw_files, plots
from app.reports.page import code, page, row, rule

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    pictures = draw_files(
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


def _mean_of_best(runs: Sequence[ArmRun]) -> float:
    return median([mean(run.curve) for run in runs])


def _quartiles(runs: Sequence[ArmRun]) -> Quartiles:
    ends = [run.end for run in runs]
    return Quartiles(quantile(ends, 0.25), median(ends), quantile(ends, 0.75))
