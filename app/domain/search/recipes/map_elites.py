"""MAP-Elites on islands with ring migration.

Source: Mouret & Clune 2015 for the grid; the arrangement in islands and its parameters are
OpenEvolve's.  Departures: exploitation takes one of the fittest programs that are not exhausted,
unless an archive size is given; a population is the elites of the grid alone; the archive that
exploitation draws from is the island's own best; weights come from ranks, so that negative fitness
is no different from positive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from app.domain.search.archive import Bred, Elite, IslandView, best, grid
from app.domain.search.promotion import cascade
from app.domain.search.strategy import (
    Lineage,
    Move,
    RecipeInputs,
    Selection,
    Strategy,
    Upkeep,
    at_least,
)

LEAST_PATIENCE, LONGEST_PATIENCE = 10, 20
PROMISING = 10
"""The fittest elites that exploitation looks at; each costs the count of its children."""
CONTENDERS = 3
"""Where the best is exhausted: the fittest that are not, of which the longest line goes on."""
CLIMB, LONGEST_CLIMB = 2 / 3, 3
"""The share of draws that stay with the best beyond its patience, and how many times that."""
FEW_LEFT = 2
"""Duplicates among the children of a program which show that few other children are left."""


def explore_or_exploit(
    *,
    explore: float,
    exploit: float,
    archive: int | None,
    patience: int,
    top: int,
    inspirations: int,
) -> Selection:
    """Draws a parent in one of three ways, and what the model is shown beside it.

    Args:
      explore: Probability of a uniformly drawn cell.
      exploit: Probability of exploitation.  The rest of the time the parent is drawn from the
        `archive` fittest, from all cells if that is None, the fittest weighing most (linear in
        rank).
      archive: How many of the fittest elites exploitation draws from, each being equally likely.
        With None it takes one of the fittest that have fewer than `patience` children; see
        `promising`.
      patience: Children of a program after which exploitation passes on to the next fittest;
        see `promising`.
      top: How many of the fittest are shown.
      inspirations: How many uniformly drawn others are shown.
    """

    def selection(island: IslandView, rng: Random) -> Lineage:
        toss = rng.random()
        if toss < explore:
            [parent] = island.uniform(1, rng)
        else:
            reach = min(archive or island.size, island.size)
            if toss >= explore + exploit:
                [parent] = island.best(1, skip=_low_rank(reach, rng))
            elif archive is not None:
                [parent] = island.best(1, skip=rng.randrange(reach))
            else:
                fittest = island.bred(PROMISING, LONGEST_CLIMB * patience)
                parent = promising(fittest, patience, rng)
        foremost = _others(island.best(top + 1), {parent.program})[:top]
        shown = {parent.program, *(elite.program for elite in foremost)}
        drawn = island.uniform(inspirations + len(shown), rng) if inspirations else ()
        return Lineage((parent,), (*foremost, *_others(drawn, shown)[:inspirations]))

    return selection


def default_patience(budget: int) -> int:
    """Returns how many children a program has before exploitation passes on, in a run's budget.

    A tenth of the budget, so that a small run goes deep as well; from 10 to 20.
    """
    return min(LONGEST_PATIENCE, max(LEAST_PATIENCE, budget // 10))


def promising(fittest: Sequence[Bred], patience: int, rng: Random) -> Elite:
    """Returns the fittest elite while it has fewer than `patience` children, else one of the next.

    Of the three next fittest with fewer children it is the one with the most generations, the
    fittest of those; the fittest of all if every elite is exhausted.  So a search climbs while its
    best makes progress; else it breeds from others until a child is the best, and what was found
    last is changed further before its ancestors are changed anew.

    Two of three draws stay with the fittest of all beyond its patience, up to three times as many
    children, unless two of them were duplicates: then few others are left to be found.  An initial
    program is left when its patience ends, so that a small run goes deep.

    Args:
      fittest: Best first, at least one.
      patience: At least 1.
      rng: Draws whether to stay.
    """
    best = fittest[0]
    fresh = [bred.elite for bred in fittest if bred.children < patience]
    if not fresh or fresh[0] is best.elite:
        return best.elite
    most = LONGEST_CLIMB * patience if best.elite.generation else patience
    if best.children < most and best.duplicates < FEW_LEFT and rng.random() < CLIMB:
        return best.elite
    return max(fresh[:CONTENDERS], key=lambda elite: elite.generation)


def _low_rank(n: int, rng: Random) -> int:
    """Returns a rank below `n`, drawn with weights n, n - 1, … 1."""
    return min(rng.randrange(n), rng.randrange(n))


def _others(elites: Sequence[Elite], shown: set[str]) -> tuple[Elite, ...]:
    return tuple(elite for elite in elites if elite.program not in shown)


def neighbours(every: int, rate: float) -> Upkeep:
    """Every `every` cohorts, each island offers its fittest to both neighbours.

    Args:
      every: Cohorts between two rounds.
      rate: Share of an island's cells that is offered, at least one.
    """

    def moves(islands: Sequence[IslandView], rng: Random) -> tuple[Move, ...]:  # noqa: ARG001
        n = len(islands)
        if n < 2:
            return ()
        return tuple(
            Move(elite, island.index, target)
            for island in islands
            for elite in island.best(max(1, int(island.size * rate)))
            for target in sorted({(island.index + 1) % n, (island.index - 1) % n})
        )

    return Upkeep(every, moves)


@dataclass(frozen=True, slots=True)
class MapElites:
    """The recipe; names of its parameters are OpenEvolve's where it has them.

    Attributes:
      migration_interval: Cohorts per island between two migrations; at least 1.
      migration_rate: See `neighbours`.
      archive_size: How many of the fittest elites of all islands exploitation draws from; an
        island has an equal share of them, at least one.  None: see `explore_or_exploit`.
      exploration_ratio, exploitation_ratio, top_programs, inspirations: See
        `explore_or_exploit`.
      patience: Children, those in flight included, after which exploitation leaves the fittest
        program of an island for the one of the most generations among the first three with fewer
        children of the ten fittest, if there is one. Two of three draws stay with the fittest,
        unless it is an initial program, until it has three times as many children, or two
        duplicates among them. No effect with `search.archive_size`. Without a value, a tenth of the
        budget, from 10 to 20.
      refuse_clones: Whether a child whose scores and metrics all equal those of an elite of its
        island opens no new cell (a seed may); its `refused` event names that elite as `clone_of`.
        Turn it off where equal metrics do not mean equal behaviour.

    Raises:
      ValueError: `patience` is below 1.
    """

    migration_interval: int = 10
    migration_rate: float = 0.1
    exploration_ratio: float = 0.05
    exploitation_ratio: float = 0.95
    archive_size: int | None = None
    patience: int | None = None
    top_programs: int = 3
    inspirations: int = 2
    refuse_clones: bool = True

    def __post_init__(self) -> None:
        at_least(1, patience=LEAST_PATIENCE if self.patience is None else self.patience)

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        archive = self.archive_size and max(1, self.archive_size // inputs.islands)
        return Strategy(
            niche=grid(inputs.axes),
            occupancy=best(1),
            selection=explore_or_exploit(
                explore=self.exploration_ratio,
                exploit=self.exploitation_ratio,
                archive=archive,
                patience=self.patience or default_patience(inputs.budget),
                top=self.top_programs,
                inspirations=self.inspirations,
            ),
            promotion=cascade(inputs.stages, inputs.thresholds, inputs.cases),
            upkeep=neighbours(self.migration_interval * inputs.islands, self.migration_rate),
            refuse_clones=self.refuse_clones,
            operators_aim=True,
        )
