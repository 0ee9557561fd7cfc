"""FunSearch: islands of clusters of programs that score alike, whose weaker half is reset.

Source: Romera-Paredes et al. 2024, "Mathematical discoveries from program search with large
language models", Methods, and the released `programs_database.py`.  Departures:
docs/decisions/search-departures.md.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from app.domain.search.archive import Elite, IslandView, Quality, by_signature, shortest
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

CLUSTERS = 1000
"""The fittest clusters that a draw looks at, so that its cost is bounded."""


def softmax(scores: Sequence[float], temperature: float) -> list[float]:
    """Returns weights that rise with the scores, the highest being 1; temperature > 0."""
    highest = max(scores)
    return [math.exp((score - highest) / temperature) for score in scores]


def length_weights(lengths: Sequence[int]) -> list[float]:
    """Returns the weights of the programs of a cluster: the shorter one is likelier."""
    least, most = min(lengths), max(lengths)
    return softmax([(least - length) / (most + 1e-6) for length in lengths], 1.0)


def annealed(temperature: float, period: int, admitted: int) -> float:
    """Returns the temperature after so many admitted programs; > 0, however small it was.

    It falls linearly and begins anew after each `period`.
    """
    return max(temperature * (1 - admitted % period / period), sys.float_info.min)


def clusters_then_lengths(parents: int, temperature: float, period: int) -> Selection:
    """Draws clusters by their scores, and a program of each by its length.

    The fittest of the drawn programs is the first parent, from whose file the child is made.  A
    program that is drawn twice counts once.

    Args:
      parents: Clusters that are drawn, with replacement; at most as many as there are.
      temperature: See `annealed`.
      period: See `annealed`.
    """

    def selection(island: IslandView, rng: Random) -> Lineage:
        heads = island.heads(CLUSTERS)
        comparable = [head for head in heads if head.stages_left == heads[0].stages_left]
        heat = annealed(temperature, period, island.admitted)
        weights = softmax([head.fitness for head in comparable], heat)
        drawn = rng.choices(comparable, weights, k=min(parents, len(comparable)))
        programs = dict.fromkeys(_member(island, head, rng) for head in drawn)
        return Lineage(tuple(sorted(programs, key=lambda elite: elite.fitness, reverse=True)))

    return selection


def _member(island: IslandView, head: Elite, rng: Random) -> Elite:
    """Draws a program of a head's cluster."""
    members = island.cell(head.cell).occupants
    [member] = rng.choices(members, length_weights([elite.length for elite in members]))
    return member


def weaker_half(islands: Sequence[IslandView], rng: Random) -> tuple[Move, ...]:
    """Resets the half of the islands whose best is worse; an odd one stays; ties are drawn.

    Each is founded by the best program of one of the others, drawn for it.
    """

    def standing(island: IslandView) -> tuple[tuple[Quality, ...], float]:
        return tuple(elite.quality for elite in island.best(1)), rng.random()

    ranked = sorted(islands, key=standing)
    weaker, stronger = ranked[: len(ranked) // 2], ranked[len(ranked) // 2 :]
    sources = [(island, rng.choice(stronger)) for island in weaker]
    return tuple(
        Move(founder, source.index, island.index, reset=True)
        for island, source in sources
        for founder in source.best(1)
    )


@dataclass(frozen=True, slots=True)
class FunSearch:
    """The recipe.

    Attributes:
      parents: Programs that a child is bred from; the fittest of them is changed. The operator
        `complete` shows them, as many as `prompts.functions_per_prompt`.
      temperature: Of the softmax over the scores of clusters, in units of fitness. Fitness of large
        numbers needs a higher one.
      temperature_period: Programs that an island admits while the temperature falls linearly
        towards 0 and begins anew.
      cluster_size: Programs that a cluster keeps, the shortest.
      reset_interval: Cohorts of an island between two resets, which empty the worse half of the
        islands and found each by the best program of another. 0 for never, and then for one island.

    Raises:
      ValueError: A parameter is out of range.
    """

    parents: int = 2
    temperature: float = 0.1
    temperature_period: int = 30_000
    cluster_size: int = 64
    reset_interval: int = 250

    def __post_init__(self) -> None:
        at_least(1, parents=self.parents, cluster_size=self.cluster_size)
        at_least(1, temperature_period=self.temperature_period)
        at_least(0, reset_interval=self.reset_interval)
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be above 0 and finite, not {self.temperature:g}")

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        return Strategy(
            niche=by_signature,
            occupancy=shortest(self.cluster_size),
            selection=clusters_then_lengths(
                self.parents, self.temperature, self.temperature_period
            ),
            promotion=cascade(inputs.stages, inputs.thresholds, inputs.cases),
            upkeep=Upkeep(self.reset_interval * inputs.islands, weaker_half),
            model_mix={"complete": 1.0},
            gridded=False,
        )
