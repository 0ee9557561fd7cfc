"""FunSearch-Lite: generations of programs, of which only the best are evaluated in full.

A generation of an island is one cohort: refinements of its fittest programs by the refiner,
mutations of selected programs, and programs from scratch.  All are measured at the problem's first
stage; the best go on to the others.  The islands end a generation together, and exchange programs
before some of the next ones.

Source: the architecture of FunSearch-Lite.  Departures: docs/decisions/search-departures.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeAlias

from app.domain.evaluation import CaseId
from app.domain.finite import difference, median, position
from app.domain.operator import Role
from app.domain.program import ProgramId
from app.domain.search.archive import Cell, Elite, IslandView, Occupancy
from app.domain.search.gates import TopOf
from app.domain.search.promotion import cascade, top
from app.domain.search.recipes.random_search import by_origin, initial_program
from app.domain.search.strategy import (
    Barrier,
    Lineage,
    Move,
    Phase,
    RecipeInputs,
    Selection,
    Strategy,
    Upkeep,
    at_least,
    fixed,
    single,
)

Choice: TypeAlias = Callable[[Sequence[Elite], Random], Elite]
"""Draws a parent; the elites come best first, at least one."""


def tournament(size: int) -> Choice:
    """Returns the rule that takes the best of `size` uniformly drawn programs."""

    def choice(elites: Sequence[Elite], rng: Random) -> Elite:
        return elites[min(rng.sample(range(len(elites)), min(size, len(elites))))]

    return choice


def by_rank(elites: Sequence[Elite], rng: Random) -> Elite:
    """Draws with weights n, n - 1, … 1."""
    [drawn] = rng.choices(elites, range(len(elites), 0, -1))
    return drawn


def by_fitness(elites: Sequence[Elite], rng: Random) -> Elite:
    """Draws with weights that rise linearly with fitness, whatever its sign and unit.

    The least fit of n has a weight of 1/n of the range, so that it can be drawn.  A program that
    was measured at fewer stages than the best counts as the least fit.
    """
    comparable = [elite.fitness for elite in elites if elite.stages_left == elites[0].stages_left]
    low, high = min(comparable), max(comparable)
    weights = [
        1 / len(elites)
        + (position(e.fitness, low, high) if e.stages_left == elites[0].stages_left else 0.0)
        for e in elites
    ]
    [drawn] = rng.choices(elites, weights)
    return drawn


def lexicase(
    elites: Sequence[Elite], scores: Mapping[ProgramId, Mapping[CaseId, float]], rng: Random
) -> Elite:
    """Takes a program that is among the best on the first of the cases, in a drawn order.

    Of those that are, the best on the next case stay, and so on; ties are drawn.  Whoever is the
    best on one case alone is thus a parent, however low its mean.  Among the best is who is below
    by no more than the median absolute deviation of all programs on that case.

    Source: La Cava, Spector & Danai 2016, "Epsilon-lexicase selection for regression", the
    semi-dynamic form.
    """
    cases = sorted({case for elite in elites for case in scores[elite.program]})
    rng.shuffle(cases)
    left = list(elites)
    for case in cases:
        known = {e.program: scores[e.program].get(case, -math.inf) for e in elites}
        finite = [score for score in known.values() if math.isfinite(score)]
        middle = median(finite)
        spread = median(abs(difference(score, middle)) for score in finite)
        least = max(known[elite.program] for elite in left) - spread
        left = [elite for elite in left if known[elite.program] >= least]
        if len(left) == 1:
            break
    return rng.choice(left)


def population(capacity: int, elites: int, *, distinct: bool) -> Occupancy:
    """Returns the rule of a population: its fittest stay, the other places are the newest's.

    Args:
      capacity: Programs that are kept.
      elites: The fittest of them, which stay whatever comes; older ones win ties.  At least 1.
      distinct: Whether of programs that behave alike only one is kept: the shorter one, of equally
        long ones the older.
    """

    def occupancy(cell: Cell, entrant: Elite) -> Cell:
        others = list(cell.occupants)
        for known in cell.occupants:
            alike = known.program == entrant.program or (
                distinct and known.behaviour == entrant.behaviour
            )
            if alike and entrant.length >= known.length and known.quality == entrant.quality:
                return cell
            if alike:
                others.remove(known)
        ranked = sorted([*others, entrant], key=lambda elite: elite.quality, reverse=True)
        kept = ranked[:elites]
        rest = [elite for elite in (entrant, *others) if elite not in kept]
        after = (*kept, *rest[: capacity - len(kept)])
        return cell if after == cell.occupants else replace(cell, occupants=after)

    return occupancy


Topology: TypeAlias = Literal["ring", "ring-both", "star", "all"]


def targets(topology: Topology, island: int, islands: int) -> list[int]:
    """Returns the islands that an island sends its migrants to, in order.

    The hub of a star is island 0: it sends to all, and all send to it.
    """
    reached: Mapping[Topology, Sequence[int]] = {
        "ring": [(island + 1) % islands],
        "ring-both": [(island + 1) % islands, (island - 1) % islands],
        "star": range(islands) if island == 0 else [0],
        "all": range(islands),
    }
    return sorted({*reached[topology]} - {island})


def share_best(every: int, topology: Topology, migrants: int) -> Upkeep:
    """Every `every` cohorts, each island sends its fittest `migrants` along a topology."""

    def moves(islands: Sequence[IslandView], rng: Random) -> tuple[Move, ...]:  # noqa: ARG001
        return tuple(
            Move(elite, island.index, target)
            for island in islands
            for elite in island.best(migrants)
            for target in targets(topology, island.index, len(islands))
        )

    return Upkeep(every, moves)


def mutation(choice: Choice, survivors: int, shown: int) -> Selection:
    """Draws a parent among the fittest `survivors`; the fittest others are shown beside it."""

    def selection(island: IslandView, rng: Random) -> Lineage:
        parent = choice(island.best(survivors), rng)
        return Lineage((parent,), _others(island, parent, shown))

    return selection


def specialists(survivors: int, shown: int) -> Selection:
    """Draws a parent by `lexicase` among the fittest `survivors` measured at as many stages."""

    def selection(island: IslandView, rng: Random) -> Lineage:
        fittest = island.best(survivors)
        elites = [elite for elite in fittest if elite.stages_left == fittest[0].stages_left]
        parent = lexicase(elites, island.scores([elite.program for elite in elites]), rng)
        return Lineage((parent,), _others(island, parent, shown))

    return selection


def refinement(rank: int, shown: int) -> Selection:
    """Takes the program of a rank, from 0; the last of an island that has fewer programs."""

    def selection(island: IslandView, rng: Random) -> Lineage:  # noqa: ARG001
        parent = island.best(rank + 1)[-1]
        return Lineage((parent,), _others(island, parent, shown))

    return selection


def _others(island: IslandView, parent: Elite, n: int) -> tuple[Elite, ...]:
    fittest = island.best(n + 1)
    return tuple(elite for elite in fittest if elite.program != parent.program)[:n]


@dataclass(frozen=True, slots=True)
class FunSearchLite:
    """The recipe.

    Attributes:
      fresh: Programs from scratch in a generation of an island: children of an initial program
        without inspirations.
      mutations: Children of selected programs in a generation.
      refinements: Children in a generation that the role `refiner`, or else the generator, writes,
        one of each of the fittest programs of the island.
      top_k: Programs of a generation that are measured at the stages after the first.
      steady: Whether cohorts have one proposal, which keeps workers busy where evaluations take
        unequally long. A program goes on after the first stage if it is among the `top_k` of the
        newest `window` programs of its island, in place of the problem's first threshold.
      window: The newest programs that `steady` compares. Without a value, those of a generation.
      population: Programs that an island keeps beside its initial ones.
      elites: The fittest of the population, which stay; the other places belong to the newest
        programs. Without a value, all are elites.
      survivors: The fittest programs of an island, of which one is the parent of a mutation.
      selection: How the parent is selected: `tournament` takes the best of a few drawn uniformly,
        `rank` and `weighted` draw by rank or fitness, `lexicase` takes one that is among the best
        on cases in a drawn order.
      tournament: Programs that a tournament compares.
      distinct: Whether of programs with equal scores and metrics only the shortest is kept.
      topology: The islands that receive migrants: the next (`ring`), both neighbours (`ring-both`),
        all from island 0 and island 0 from all (`star`), or all (`all`).
      migrants: Fittest programs of an island that migrate.
      deadline_seconds: Seconds until the deadline of each generation.
      migration_interval: Generations between two migrations.
      top_programs: The fittest others that are shown beside a parent.

    Raises:
      ValueError: A parameter is out of range.
    """

    fresh: int = 2
    mutations: int = 16
    refinements: int = 2
    top_k: int = 10
    steady: bool = False
    window: int | None = None
    population: int = 50
    elites: int | None = None
    survivors: int = 25
    selection: Literal["tournament", "rank", "weighted", "lexicase"] = "tournament"
    tournament: int = 3
    distinct: bool = True
    topology: Topology = "ring"
    migrants: int = 1
    deadline_seconds: float | None = None
    migration_interval: int = 10
    top_programs: int = 3

    def __post_init__(self) -> None:
        at_least(0, fresh=self.fresh, mutations=self.mutations, refinements=self.refinements)
        at_least(1, generation=self.generation, top_k=self.top_k, population=self.population)
        at_least(1, survivors=self.survivors, tournament=self.tournament, migrants=self.migrants)
        at_least(1, deadline_seconds=self.deadline_seconds)
        if self.window is not None and self.window < self.top_k:
            raise ValueError(f"window must be at least top_k, {self.top_k}, not {self.window}")
        if self.elites is not None and not 1 <= self.elites <= self.population:
            raise ValueError(
                f"elites must be from 1 to the population of {self.population}, not {self.elites}"
            )

    @property
    def generation(self) -> int:
        """The proposals of a generation of one island."""
        return self.fresh + self.mutations + self.refinements

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        rules: Mapping[str, Choice] = {
            "tournament": tournament(self.tournament),
            "rank": by_rank,
            "weighted": by_fitness,
        }
        mutate = (
            specialists(self.survivors, self.top_programs)
            if self.selection == "lexicase"
            else mutation(rules[self.selection], self.survivors, self.top_programs)
        )
        elites = self.population if self.elites is None else self.elites
        refined = tuple(
            Phase(1, refinement(rank, self.top_programs), Role.REFINER)
            for rank in range(self.refinements)
        )
        stages, cases = inputs.stages, inputs.cases
        newest = TopOf(self.top_k, self.window or max(self.generation, self.top_k))
        round_of_cohorts = inputs.islands * (self.generation if self.steady else 1)
        return Strategy(
            niche=by_origin,
            occupancy=population(self.population, elites, distinct=self.distinct),
            selection=mutate,
            phases=(*refined, Phase(self.mutations, mutate), Phase(self.fresh, initial_program)),
            promotion=cascade(stages, (newest, *inputs.thresholds[1:]), cases)
            if self.steady
            else top(self.top_k, stages, inputs.thresholds, cases),
            upkeep=share_best(
                self.migration_interval * round_of_cohorts, self.topology, self.migrants
            ),
            model_mix={"rewrite": 1.0},
            size=single if self.steady else fixed(self.generation),
            barrier=Barrier.NONE if self.steady else Barrier.RUN,
            gridded=False,
            deadline_seconds=self.deadline_seconds,
        )
