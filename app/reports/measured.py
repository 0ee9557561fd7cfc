"""Measurements of a program of a run as they are now: a player of games is rated anew."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.evaluation import fitness, fitness_names, merged_metrics
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.strategy import Ranking
from app.ports.ledger import Transaction


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """A program of a run with its measurements.

    Attributes:
      fitness: None where it never reached the final stage.  Of a player on a podium, the share of
        the points in its newest generation.
      verified: Whether evaluator and program were separate processes in every trial.
      fitness_names: Metrics whose mean is the fitness; see `evaluation.fitness_names`.  () where
        the fitness is no mean, as that of a bracket.
    """

    program: ProgramId
    fitness: float | None
    metrics: Mapping[str, float]
    verified: bool
    fitness_names: tuple[str, ...] = ()


def measured_program(
    tx: Transaction, run: Run, program: ProgramId, founded: float | None, *, verified: bool
) -> MeasuredProgram:
    """Returns the present measurements of a program.

    Args:
      tx: A snapshot of the ledger.
      run: The run.
      program: The program.
      founded: The fitness of the proposal that it came of.
      verified: Whether that proposal was.
    """
    evaluations = tx.history.evaluations(run.id, program)
    present, counted = founded, evaluations
    if run.ranking is Ranking.RELATIVE:
        elites = [place for place in tx.archive.elites(run.id) if place[1].program == program]
        island = None
        if elites:
            island, elite = max(elites, key=lambda place: place[1].quality)
            present = elite.fitness
        counted = tx.history.rated(run.id, program, island) or evaluations
    named = fitness(program, counted) == present or run.ranking is Ranking.ABSOLUTE
    return MeasuredProgram(
        program,
        present,
        merged_metrics(program, [*evaluations, *counted]),
        verified,
        fitness_names(program, counted) if named else (),
    )
