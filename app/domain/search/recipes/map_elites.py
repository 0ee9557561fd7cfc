"""MAP-Elites on islands with ring migration.

Source: Mouret & Clune 2015 for the grid; the arrangement in islands, its parameters and defaults
are OpenEvolve's.  Departures: a population is the elites of the grid alone; the archive
that exploitation draws from is the island's own best; weights come from ranks, so that negative
fitness is no different from positive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from app.domain.search.archive import Elite, IslandView, best, grid
from app.domain.search.promotion import cascade
from app.domain.search.strategy import Lineage, Move, RecipeInputs, Selection, Strategy, Upkeep


def explore_or_exploit(
    *, explore: float, exploit: float, archive: int, top: int, inspirations: int
) -> Selection:
    """Draws a parent in one of three ways, and what the model is shown beside it.

    Args:
      explore: Probability of a uniformly drawn cell.
      exploit: Probability of a uniform draw from the `archive` fittest.  The rest of the time the
        parent is drawn from the same elites, the fittest weighing most (linear in rank).
      archive: How many of the fittest elites exploitation may draw from; at least 1.
      top: How many of the fittest are shown.
      inspirations: How many uniformly drawn others are shown.
    """

    def selection(island: IslandView, rng: Random) -> Lineage:
        toss = rng.random()
        if toss < explore:
            [parent] = island.uniform(1, rng)
        else:
            reach = min(archive, island.size)
            rank = rng.randrange(reach) if toss < explore + exploit else _low_rank(reach, rng)
            [parent] = island.best(1, skip=rank)
        fittest = _others(island.best(top + 1), {parent.program})[:top]
        shown = {parent.program, *(elite.program for elite in fittest)}
        drawn = island.uniform(inspirations + len(shown), rng) if inspirations else ()
        return Lineage((parent,), (*fittest, *_others(drawn, shown)[:inspirations]))

    return selection


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
    """The recipe; names and defaults of its parameters are OpenEvolve's.

    Attributes:
      migration_interval: Cohorts per island between two migrations; at least 1.
      migration_rate: See `neighbours`.
      refuse_clones: See `Strategy`.
      exploration_ratio, exploitation_ratio, archive_size, top_programs, inspirations: See
        `explore_or_exploit`.
    """

    migration_interval: int = 50
    migration_rate: float = 0.1
    exploration_ratio: float = 0.2
    exploitation_ratio: float = 0.7
    archive_size: int = 100
    top_programs: int = 3
    inspirations: int = 2
    refuse_clones: bool = True

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        return Strategy(
            niche=grid(inputs.axes),
            occupancy=best(1),
            selection=explore_or_exploit(
                explore=self.exploration_ratio,
                exploit=self.exploitation_ratio,
                archive=self.archive_size,
                top=self.top_programs,
                inspirations=self.inspirations,
            ),
            promotion=cascade(inputs.stages, inputs.thresholds),
            upkeep=neighbours(self.migration_interval * inputs.islands, self.migration_rate),
            refuse_clones=self.refuse_clones,
            operators_aim=True,
        )
