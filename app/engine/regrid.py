"""Regrid: open axes get their range from what was measured, once, and everyone is placed anew."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.events import Regridded
from app.domain.run import Run
from app.domain.search.archive import Entrant, IslandView, learnt
from app.domain.search.back_pressure import MOST
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


def regrid(ctx: Context, tx: Transaction, run: Run) -> Run:
    """Learns provisional ranges once `search.grid_after` programs were measured.

    The caller holds the run's planning lock.  Programs are offered again in the order in which they
    were planned, each to its own island; elites that had only moved there return by moving again.

    Returns:
      The run with the grid it now has.
    """
    after = run.rules.search.grid_after
    if run.proposals < after:
        return run
    islands = tx.archive.islands(run.id, lock=True)
    everyone = _measured(tx, run, after)
    if len(everyone) < after and run.proposals < run.budget.proposals:
        return run
    tx.runs.set_axes(run.id, learnt(run.axes, [one.entrant.features for one in everyone]))
    run = tx.runs.get(run.id)
    _place_anew(ctx, tx, run, islands, everyone)
    tx.events.emit(run.id, Regridded(axes=run.axes))
    return run


def _measured(tx: Transaction, run: Run, after: int) -> list[_Placed]:
    """Returns every program admitted so far; bounded, because regridding happens early."""
    bound = 4 * after + 2 * MOST
    placed = tx.history.placed(run.id, bound)
    lengths = tx.programs.lengths(sorted({one.program for one, _ in placed if one.program}))
    found = []
    for one, evaluations in placed:
        if one.program is not None and one.fitness is not None:
            length = lengths[one.program]
            entrant = Entrant(
                one.program,
                one.fitness,
                length,
                one.generation,
                tuple(evaluations),
                one.stages_left,
            )
            island = None if one.seed else one.island
            found.append(_Placed(entrant, island, one.epoch))
    return found


def _place_anew(
    ctx: Context,
    tx: Transaction,
    run: Run,
    islands: Sequence[IslandView],
    everyone: Sequence[_Placed],
) -> None:
    admission = Admission(tx, run, ctx.strategy(run), islands)
    for island in islands:
        admission.clear(island.index, reset=False)
        for one in everyone:
            if one.island in (None, island.index):
                admission.offer(one.entrant, island.index, one.epoch)
