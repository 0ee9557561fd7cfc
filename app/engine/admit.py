"""Admission: the one door to the archive."""

from collections.abc import Sequence

from app.domain.archive import Elite, Entrant, IslandView, learnt
from app.domain.cohort import Cohort
from app.domain.events import EventKind
from app.domain.refining import written
from app.domain.run import Run
from app.domain.strategy import Strategy
from app.engine.context import Context
from app.ledger import Transaction


def offer(
    ctx: Context, tx: Transaction, run: Run, cohort: Cohort, entrants: Sequence[Entrant]
) -> None:
    """Offers a cohort's entrants to their islands, and emits what came of it.

    Seeds, and whoever arrives while the grid is still being learnt, lock their islands first: the
    grid may change while they wait.  Later on nobody waits to be refused, and who would be taken
    enters if nobody else has since its cell was read; else once more, with the island locked.
    """
    learning = any(axis.provisional or not axis.ranged for axis in run.axes)
    if learning or cohort.founding:
        run = _lock_and_learn(tx, run, cohort, entrants)
    strategy = ctx.strategy(run)
    islands = range(run.islands) if cohort.founding else (cohort.island,)
    for entrant in entrants:
        took = False
        for island in islands:
            elite = _offer(tx, run, strategy, cohort, island, entrant)
            _announce(tx, run, cohort, island, entrant, elite)
            took = took or elite is not None
        if took:
            _announce_best(tx, run, cohort, entrant)


def _lock_and_learn(tx: Transaction, run: Run, cohort: Cohort, entrants: Sequence[Entrant]) -> Run:
    """Locks a cohort's islands in index order; returns the run with the grid it now has."""
    if cohort.founding:
        tx.islands(run.id, lock=True)
    else:
        tx.island(run.id, cohort.island, lock=True)
    run = tx.run(run.id)
    if all(axis.ranged for axis in run.axes):
        return run
    seen = [entrant.features for entrant in entrants]
    tx.set_axes(run.id, learnt(run.axes, seen, provisional=True))
    return tx.run(run.id)


def _offer(
    tx: Transaction, run: Run, strategy: Strategy, cohort: Cohort, island: int, entrant: Entrant
) -> Elite | None:
    """Offers an entrant to its cell; a child of an earlier epoch is not offered at all."""
    elite = entrant.elite(strategy.niche(entrant))
    member = cohort.member(entrant.program)
    draft = member.draft if member else None
    for locked in (False, True):
        view = tx.island(run.id, island, lock=locked)
        epoch = view.epoch  # read before the cell, so that a change in between is noticed
        if draft is not None and draft.epoch != epoch:
            return None
        before = view.cell(elite.cell)
        after = strategy.occupancy(before, elite)
        if after is before:
            return None
        if tx.put_cell(run.id, island, after, seen=None if locked else view):
            return elite
    raise AssertionError(f"island {island} of run {run.id} changed while it was locked")


def admit(
    tx: Transaction, run: int, island: IslandView, strategy: Strategy, entrant: Entrant
) -> Elite | None:
    """Offers an entrant to its cell of an island this transaction has locked.

    Returns:
      The elite it became, or None if the cell kept who was there.
    """
    return place(tx, run, island, strategy, entrant.elite(strategy.niche(entrant)))


def place(
    tx: Transaction, run: int, island: IslandView, strategy: Strategy, elite: Elite
) -> Elite | None:
    """Offers an elite to the cell of its key; see `admit`."""
    before = island.cell(elite.cell)
    after = strategy.occupancy(before, elite)
    if after is before:
        return None
    tx.put_cell(run, island.index, after)
    return elite


def _announce(
    tx: Transaction, run: Run, cohort: Cohort, island: int, entrant: Entrant, elite: Elite | None
) -> None:
    member = cohort.member(entrant.program)
    reached = EventKind.ADMITTED if elite else EventKind.REFUSED
    tx.emit(
        run.id,
        EventKind.FOUNDED if cohort.founding else reached,
        {
            "proposal": member.ordinal if member else None,
            "program": entrant.program,
            "island": island,
            "operator": cohort.operator,
            "fitness": entrant.fitness,
            "cell": list(elite.cell) if elite else None,
            **written(member.draft if member else None),
        },
    )


def _announce_best(tx: Transaction, run: Run, cohort: Cohort, entrant: Entrant) -> None:
    """Emits `improved` for a new best of the run; two islands at once may both claim it."""
    best = tx.best_fitness(run.id, besides=cohort.id)
    if best is None or entrant.fitness > best:
        settled = run.proposals - tx.backlog(run.id).unsettled
        facts = {"program": entrant.program, "fitness": entrant.fitness, "settled": settled}
        tx.emit(run.id, EventKind.IMPROVED, facts)
