"""Admission: the one door to the archive."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.events import Admitted, Founded, Improved, Refused
from app.domain.operator import Role
from app.domain.run import Run
from app.domain.search.archive import Elite, Entrant, IslandView, Quality, learnt
from app.domain.search.cohort import Cohort, ProposalId
from app.domain.search.strategy import Strategy
from app.engine.context import Context
from app.ports.ledger import Transaction


@dataclass(frozen=True, slots=True)
class Offer:
    """Who of a cohort has reached the archive's door."""

    cohort: Cohort
    entrants: Sequence[Entrant]


def offer(ctx: Context, tx: Transaction, run: Run, offers: Sequence[Offer]) -> None:
    """Offers entrants to their islands, in the islands' order, and emits what came of it.

    Seeds, and whoever arrives while the grid is still being learnt, lock their islands first: the
    grid may change while they wait.  Later on nobody waits to be refused, and who would be taken
    enters if nobody else has since its cell was read; else once more, with the island locked.
    """
    offers = sorted(offers, key=lambda one: one.cohort.island)
    learning = any(axis.provisional or not axis.ranged for axis in run.axes)
    if learning or any(one.cohort.founding for one in offers):
        run = _lock_and_learn(tx, run, offers)
    entering = [
        member.id
        for one in offers
        for entrant in one.entrants
        if (member := one.cohort.member(entrant.program)) is not None
    ]
    door = _Door(tx, run, ctx.strategy(run), entering)
    taken = [
        entrant for one in offers for entrant in one.entrants if _taken(door, one.cohort, entrant)
    ]
    if taken:
        _announce_best(door, taken)


class _Door:
    """The archive of a run, while a transaction offers it the programs of some proposals."""

    def __init__(
        self, tx: Transaction, run: Run, strategy: Strategy, entering: Sequence[ProposalId]
    ) -> None:
        self.tx = tx
        self.run = run
        self.strategy = strategy
        self._entering = entering

    @functools.cached_property
    def best(self) -> Quality | None:
        """Quality of the run's best before those proposals; None while there is none."""
        return self.tx.history.best_quality(self.run.id, besides=self._entering)


def _taken(door: _Door, cohort: Cohort, entrant: Entrant) -> bool:
    took = False
    for island in range(door.run.islands) if cohort.founding else (cohort.island,):
        elite = _offer(door, cohort, island, entrant)
        _announce(door.tx, door.run, cohort, island, entrant, elite)
        took = took or elite is not None
    return took


def _lock_and_learn(tx: Transaction, run: Run, offers: Sequence[Offer]) -> Run:
    """Locks the islands of offers in index order; returns the run with the grid it now has."""
    if any(one.cohort.founding for one in offers):
        tx.archive.islands(run.id, lock=True)
    else:
        for island in sorted({one.cohort.island for one in offers}):
            tx.archive.island(run.id, island, lock=True)
    run = tx.runs.get(run.id)
    if all(axis.ranged for axis in run.axes):
        return run
    seen = [entrant.features for one in offers for entrant in one.entrants]
    tx.runs.set_axes(run.id, learnt(run.axes, seen, provisional=True))
    return tx.runs.get(run.id)


def _offer(door: _Door, cohort: Cohort, island: int, entrant: Entrant) -> Elite | None:
    """Offers an entrant to its cell; a child of an earlier epoch is not offered at all."""
    elite = entrant.elite(door.strategy.niche(entrant))
    member = cohort.member(entrant.program)
    draft = member.draft if member else None
    for locked in (False, True):
        view = door.tx.archive.island(door.run.id, island, lock=locked)
        before = view.cell(elite.cell)
        if draft is not None and draft.epoch != view.epoch:
            return None
        after = door.strategy.occupancy(before, elite)
        if after is before:
            return None
        _ = door.best  # read before entering, which locks the island
        if door.tx.archive.put_cell(door.run.id, island, after, seen=None if locked else view):
            return elite
    raise AssertionError(f"island {island} of run {door.run.id} changed while it was locked")


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
    tx.archive.put_cell(run, island.index, after)
    return elite


def _announce(
    tx: Transaction, run: Run, cohort: Cohort, island: int, entrant: Entrant, elite: Elite | None
) -> None:
    member = cohort.member(entrant.program)
    reached = Admitted if elite else Refused
    fact = (Founded if cohort.founding else reached)(
        proposal=member.ordinal if member else None,
        program=entrant.program,
        island=island,
        operator=cohort.operator,
        fitness=entrant.fitness,
        cell=elite.cell if elite else None,
        role=member.role if member else Role.GENERATOR,
    )
    tx.events.emit(run.id, fact)


def _announce_best(door: _Door, taken: Sequence[Entrant]) -> None:
    """Emits `improved` for each new best of the run; two islands at once may both claim it."""
    best = door.best
    for entrant in taken:
        if best is None or entrant.quality > best:
            best = entrant.quality
            settled = door.run.proposals - door.tx.proposals.backlog(door.run.id).unsettled
            fact = Improved(program=entrant.program, fitness=entrant.fitness, settled=settled)
            door.tx.events.emit(door.run.id, fact)
