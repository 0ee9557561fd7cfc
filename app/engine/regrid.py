"""Regrid: open axes get their range from measured features, and programs are placed anew."""

from dataclasses import dataclass

from app.domain.events import Noticed, Regridded
from app.domain.finite import MARK
from app.domain.run import Run
from app.domain.search.archive import Entrant, learnt, left_out
from app.domain.search.back_pressure import MOST
from app.domain.search.strategy import Strategy
from app.engine.admission import Admission
from app.engine.context import Context
from app.ports.ledger import Transaction


@dataclass(frozen=True, slots=True)
class _Placed:
    """A program that is offered again.

    Attributes:
      island: The island of its proposal; None for a seed, which is offered to every island.
      epoch: The island's epoch when its parents were drawn.
    """

    entrant: Entrant
    island: int | None
    epoch: int


def regrid(ctx: Context, tx: Transaction, run: Run, strategy: Strategy) -> tuple[Run, Strategy]:
    """Learns provisional ranges once `search.grid_after` programs were measured.

    The caller holds the run's planning lock.  Programs are offered again in the order in which they
    were planned, each to its own island; elites that had only moved there return by moving again.

    Returns:
      The run with the grid it now has, and its strategy.
    """
    after = run.rules.grid_after
    if run.proposals < after:
        return run, strategy
    islands = tx.archive.islands(run.id, lock=True)
    programs = _read_measured(tx, run, after)
    if len(programs) < after and run.proposals < run.budget.proposals:
        return run, strategy
    features = [program.entrant.features for program in programs]
    open_axes = [axis for axis in run.axes if axis.provisional or not axis.ranged]
    tx.runs.set_axes(run.id, learnt(run.axes, features))
    run = tx.runs.get(run.id)
    strategy = ctx.strategy(run)
    admission = Admission(tx, run, strategy, islands)
    for island in islands:
        admission.clear(island.index, reset=False)
        for program in programs:
            if program.island in (None, island.index):
                admission.offer(program.entrant, island.index, program.epoch)
    tx.events.emit(run.id, Regridded(axes=run.axes))
    for axis in open_axes:
        if marks := left_out(axis, features):
            tx.events.emit(run.id, Noticed(text=_without_marks(axis.name, marks, len(features))))
    return run, strategy


def _without_marks(axis: str, marks: int, programs: int) -> str:
    return (
        f"axis `{axis}`: {marks} of {programs} programs have a value of {MARK:g} or more in size, "
        f"which is taken for no measurement. The range of the axis was learnt without them, and "
        f"they have its last bin, or its first"
    )


def _read_measured(tx: Transaction, run: Run, after: int) -> list[_Placed]:
    """Returns every program admitted so far; bounded, because regridding happens early."""
    bound = 4 * after + 2 * MOST
    placed = tx.history.placed(run.id, bound)
    ids = sorted({proposal.program for proposal, _ in placed if proposal.program})
    lengths = tx.programs.lengths(ids)
    programs = []
    for one, evaluations in placed:
        if one.program is not None and one.fitness is not None:
            length, measured = lengths[one.program], tuple(evaluations)
            age, left = one.generation, one.stages_left
            entrant = Entrant(one.program, one.fitness, length, age, measured, left)
            programs.append(_Placed(entrant, None if one.seed else one.island, one.epoch))
    return programs
