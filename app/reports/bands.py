"""The arms of an `evoq compare` as bands, and the settings that differ between runs.

They are of bounded size and are read while the runs go on; `app.reports.comparison` has every curve
of runs that have ended.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.domain.events import Event, EventKind, Improved
from app.domain.finite import quantile
from app.domain.run import Run, RunState
from app.domain.search.strategy import Ranking
from app.ports.ledger import Transaction
from app.ports.protocols import Store
from app.ports.runs import ComparedRuns
from app.reports.arms import Superiority, differing, superiority
from app.reports.course import Course

MOST_POINTS = 400
"""Points of a band; of a longer one every n-th."""
PAGE = 1000
"""Events that are read at once."""
_OF_CHAMPIONS = (
    *(EventKind.CROWNED, EventKind.RERATED),
    *(EventKind.ADMITTED, EventKind.REFUSED, EventKind.CUT, EventKind.FAILED),
)
"""Events that say what a champion had, and those that are counted to say when."""

Steps = Sequence[tuple[int, float]]
"""The best fitness of a run from a number of settled proposals on, in order."""


@dataclass(frozen=True, slots=True)
class BandPoint:
    """The best so far of an arm's runs after so many settled proposals: quartiles and median."""

    settled: int
    q25: float
    median: float
    q75: float


@dataclass(frozen=True, slots=True)
class ArmBand:
    """The finished runs of an arm on one problem.

    Attributes:
      band: From the first number of settled proposals at which all of them have a fitness.
      first_above: How probably a run of the problem's first arm ends above one of this arm; None
        of the first arm itself, and where one of the two has no finished run.
    """

    runs: int
    band: list[BandPoint]
    first_above: Superiority | None = None


@dataclass(frozen=True, slots=True)
class ProblemBands:
    """The arms on one problem by name, in the order in which they began."""

    problem: str
    arms: dict[str, ArmBand]


@dataclass(frozen=True, slots=True)
class ComparisonBands:
    """A comparison; its keys are those of `ComparisonDocument`, and bands stand for curves.

    Attributes:
      budget: Proposals of each run.
      differing_settings: Those that are not the same in all arms, with the value of each arm.
      unfinished: Runs that the bands leave out, with their states.
    """

    comparison: str
    budget: int
    problems: list[ProblemBands]
    differing_settings: dict[str, dict[str, object]]
    unfinished: dict[str, str]


def comparisons(store: Store) -> list[ComparedRuns]:
    """Returns the newest comparisons, newest first."""
    with store.begin() as tx:
        return tx.runs.comparisons()


def comparison(store: Store, name: str) -> ComparisonBands:
    """Returns the comparison of that name.

    Raises:
      LookupError: There is none.
    """
    with store.begin(snapshot=True) as tx:
        runs = tx.runs.of_comparison(name)
        if not runs:
            raise LookupError(f"there is no comparison {name!r}: /api/comparisons names them")
        steps = {run.name: _steps(tx, run) for run in runs if run.state is RunState.FINISHED}
    arms: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        arms.setdefault(run.problem_name, {}).setdefault(_arm(run), []).append(run)
    budget = max(run.budget.proposals for run in runs)
    return ComparisonBands(
        comparison=name,
        budget=budget,
        problems=[_problem(problem, of_arm, steps, budget) for problem, of_arm in arms.items()],
        differing_settings=settings_that_differ({_arm(run): run for run in reversed(runs)}),
        unfinished={run.name: run.state.value for run in runs if not steps.get(run.name)},
    )


def settings_that_differ(runs: dict[str, Run]) -> dict[str, dict[str, object]]:
    """Returns the settings that are not the same in all runs, by key, then by the run's label."""
    return differing({label: run.settings for label, run in runs.items()})


def band(runs: Sequence[Steps], budget: int) -> list[BandPoint]:
    """Returns the quartiles of the best so far, where any of them changes, up to the budget.

    Args:
      runs: At least one, each with at least one step.
      budget: Proposals of each run.
    """
    first = max(steps[0][0] for steps in runs)
    changes = {settled for steps in runs for settled, _ in steps if settled > first}
    at = sorted({first, *changes, max(first, budget)})
    at = at[:: -(-len(at) // MOST_POINTS)] + at[-1:]
    return [_point(runs, settled) for settled in dict.fromkeys(at)]


def _point(runs: Sequence[Steps], settled: int) -> BandPoint:
    bests = [steps[bisect_right(steps, settled, key=_settled) - 1][1] for steps in runs]
    return BandPoint(settled, *(quantile(bests, share) for share in (0.25, 0.5, 0.75)))


def _settled(step: tuple[int, float]) -> int:
    return step[0]


def _steps(tx: Transaction, run: Run) -> Steps:
    """Returns the best fitness of a run from a number of settled proposals on."""
    if run.ranking is Ranking.RELATIVE:
        course = Course()
        for event in _events(tx, run, _OF_CHAMPIONS):
            course.add([event])
        return [(best.settled, best.fitness) for best in course.bests]
    facts = [event.fact for event in _events(tx, run, (EventKind.IMPROVED,))]
    return [(fact.settled, fact.fitness) for fact in facts if isinstance(fact, Improved)]


def _events(tx: Transaction, run: Run, kinds: Sequence[EventKind]) -> Iterator[Event]:
    after = 0
    while page := tx.events.read(run.id, after=after, limit=PAGE, kinds=kinds):
        yield from page
        after = page[-1].seq


def _arm(run: Run) -> str:
    """Returns the arm that a run's name gives: COMPARISON.PROBLEM.ARM.SEED."""
    return run.name.split(".")[2]


def _problem(
    name: str, arms: dict[str, list[Run]], steps: dict[str, Steps], budget: int
) -> ProblemBands:
    measured = {
        arm: [steps[run.name] for run in runs if steps.get(run.name)] for arm, runs in arms.items()
    }
    first = [curve[-1][1] for curve in next(iter(measured.values()))]
    bands: dict[str, ArmBand] = {}
    for arm, curves in measured.items():
        ends = [curve[-1][1] for curve in curves]
        above = superiority(first, ends) if bands and first and ends else None
        bands[arm] = ArmBand(len(curves), band(curves, budget) if curves else [], above)
    return ProblemBands(name, bands)
