"""Metrics of generations: the cohorts of all islands that were planned in the same turn."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.finite import mean
from app.domain.run import Run
from app.domain.search.archive import Quality
from app.domain.search.cohort import CohortId, State
from app.domain.search.strategy import Barrier, RecipeInputs
from app.ports.history import Settled
from app.reports.champions import Champions

TOP = 5
"""Programs of a generation that `top_k_avg_score` is the mean of."""


BEST_LINE, TOP_LINE, MEAN_LINE = "best so far", f"mean of the {TOP} fittest", "mean"


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """One generation; scores are those of programs that were measured at every stage.

    Attributes:
      generation: From 0: the n-th cohort of each island.
      seconds: From the run's creation to the last of its proposals that settled.
      best_score: Highest fitness up to this generation, seeds included; None before the first.
        Where programs play each other: that of the champion after it.
      avg_score, top_k_avg_score: Mean fitness of its programs, and of its `TOP` fittest; None
        where it has none.
      avg_metrics: Mean of each metric of the evaluator over the same programs, of those that have
        it.
      num_candidates: Its settled proposals.
      num_valid: Those with a fitness, at whatever stage.
      failure_counts: Its failures by kind.
      cut_counts: Its cut proposals by reason.
    """

    generation: int
    seconds: float
    best_score: float | None
    avg_score: float | None
    top_k_avg_score: float | None
    num_candidates: int
    num_valid: int
    failure_counts: Mapping[str, int]
    cut_counts: Mapping[str, int]
    avg_metrics: Mapping[str, float]


def score_lines(rows: Sequence[GenerationRow]) -> dict[str, list[float | None]]:
    """Returns the scores of generations by the name of their line in charts and pictures."""
    return {
        BEST_LINE: [row.best_score for row in rows],
        TOP_LINE: [row.top_k_avg_score for row in rows],
        MEAN_LINE: [row.avg_score for row in rows],
    }


def has_generations(run: Run) -> bool:
    """Returns whether the islands of a run plan one cohort after the other.

    False for a recipe that is not installed here.
    """
    recipe = run.rules.recipe
    if recipe is None:
        return False
    inputs = RecipeInputs(run.axes, ("evaluate",), (), run.islands, run.budget.proposals)
    return recipe.strategy(inputs).barrier is not Barrier.NONE


def generations(
    settled: Iterable[Settled], champions: Champions | None = None
) -> list[GenerationRow]:
    """Returns a row for each generation of a run.

    Args:
      settled: All of its settled proposals.
      champions: Of a run whose programs play each other; None for any other run.
    """
    cohorts: dict[int, set[CohortId]] = {}
    best: Quality | None = None
    children = []
    for proposal in settled:
        if proposal.seed:
            best = _better(best, proposal)
        else:
            cohorts.setdefault(proposal.island, set()).add(proposal.cohort)
            children.append(proposal)
    turn = {cohort: n for island in cohorts.values() for n, cohort in enumerate(sorted(island))}
    by_turn: dict[int, list[Settled]] = {}
    for proposal in children:
        by_turn.setdefault(turn[proposal.cohort], []).append(proposal)
    rows = []
    for number in sorted(by_turn):
        for proposal in by_turn[number]:
            best = _better(best, proposal)
        score = best.fitness if best else None
        if champions is not None:
            score = champions.of(max(by_turn[number], key=_seconds).cohort)
        rows.append(_row(number, by_turn[number], score))
    return rows


def _better(best: Quality | None, proposal: Settled) -> Quality | None:
    quality = proposal.quality if proposal.state is State.ADMITTED else None
    return best if quality is None or (best is not None and quality <= best) else quality


def _seconds(proposal: Settled) -> float:
    return proposal.seconds


def _row(number: int, members: list[Settled], best: float | None) -> GenerationRow:
    admitted = [m for m in members if m.state is State.ADMITTED and (q := m.quality) and q.whole]
    whole = sorted((m.fitness for m in admitted if m.fitness is not None), reverse=True)
    return GenerationRow(
        number,
        round(max(member.seconds for member in members), 6),
        best,
        mean(whole) if whole else None,
        mean(whole[:TOP]) if whole else None,
        len(members),
        sum(member.fitness is not None for member in members),
        dict(Counter(m.failure.kind.value for m in members if m.failure)),
        dict(Counter(m.cut.value for m in members if m.cut)),
        _mean_metrics(admitted),
    )


def _mean_metrics(members: list[Settled]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for member in members:
        for name, value in member.metrics.items():
            values.setdefault(name, []).append(value)
    return {name: mean(values[name]) for name in sorted(values)}
