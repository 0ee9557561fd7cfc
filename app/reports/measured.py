"""Measurements of a program of a run as they are now: a player of games is rated anew."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.domain.evaluation import fitness, fitness_names, merged_metrics
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.archive import Elite
from app.domain.search.strategy import Ranking
from app.ports.history import Settled
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


def present_fitness(tx: Transaction, run: Run) -> dict[ProgramId, float]:
    """Returns the fitness that players on a podium are rated at now; {} where none play."""
    return {program: elite.fitness for program, (_, elite) in _places(tx, run).items()}


def read_lineage(tx: Transaction, run: Run, program: ProgramId, limit: int) -> list[Settled]:
    """Returns a program and its ancestors with their present fitness; see `History.lineage`."""
    present = present_fitness(tx, run)
    return [
        replace(settled, fitness=present.get(settled.program or "", settled.fitness))
        for settled in tx.history.lineage(run.id, program, limit)
    ]


def _places(tx: Transaction, run: Run) -> dict[ProgramId, tuple[int, Elite]]:
    """Returns the island and the place of each player on a podium, the best place of several."""
    if run.ranking is not Ranking.RELATIVE:
        return {}
    places = sorted(tx.archive.elites(run.id), key=lambda place: place[1].quality)
    return {elite.program: (island, elite) for island, elite in places}


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
        island = None
        if (place := _places(tx, run).get(program)) is not None:
            island, present = place[0], place[1].fitness
        counted = tx.history.rated(run.id, program, island) or evaluations
    named = fitness(program, counted) == present or run.ranking is Ranking.ABSOLUTE
    return MeasuredProgram(
        program,
        present,
        merged_metrics(program, [*evaluations, *counted]),
        verified,
        fitness_names(program, counted) if named else (),
    )
