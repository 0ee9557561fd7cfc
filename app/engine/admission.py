"""Admission: the one way into a cell of the archive."""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from app.domain.events import Admitted, Crowned, Founded, Improved, Refused, Rerated
from app.domain.operator import Role
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.archive import Cell, CellKey, Elite, Entrant, IslandView, Quality, learnt
from app.domain.search.cohort import Cohort, Member, ProposalId
from app.domain.search.strategy import Ranking, Strategy
from app.engine.context import Context
from app.ports.ledger import Transaction


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a program that was offered to a cell.

    Attributes:
      elite: The elite it became; None where it was refused.
      clone_of: The elite of the island with the same metrics, where that is the reason.
    """

    elite: Elite | None = None
    clone_of: ProgramId | None = None


class Admission:
    """Offers programs to the archive of a run, for the length of one transaction."""

    def __init__(
        self,
        tx: Transaction,
        run: Run,
        strategy: Strategy,
        locked: Sequence[IslandView] = (),
        entering: Sequence[ProposalId] = (),
    ) -> None:
        """Begins with nothing offered.

        Args:
          tx: The transaction.
          run: Whose archive it is.
          strategy: The run's.
          locked: Islands that the transaction has locked.
          entering: Proposals whose programs are offered; () where none is a proposal's.
        """
        self.run = run
        self._tx = tx
        self._strategy = strategy
        self._locked = {island.index: island for island in locked}
        self._cells: dict[int, dict[CellKey, Cell]] = {}
        self._entering = entering

    @functools.cached_property
    def best(self) -> Quality | None:
        """Quality of the run's best before the proposals that enter; None where there is none."""
        return self._tx.history.best_quality(self.run, besides=self._entering)

    @functools.cached_property
    def champion(self) -> Elite | None:
        """Champion of the run before the proposals enter; see `Ranking.RELATIVE`."""
        return self._tx.archive.champion(self.run.id)

    def offer(self, entrant: Entrant | Elite, island: int, epoch: int) -> Decision:
        """Offers a program to its cell of an island.

        An island that is not locked is read first and locked only where the cell takes the program:
        most programs are refused.  Where another transaction has changed the island meanwhile, the
        cell decides again.

        Args:
          entrant: The program; an elite keeps the key of its cell.
          island: The island's index.
          epoch: The epoch of the island that the program belongs to.  An island that has been reset
            since refuses it.
        """
        elite = entrant
        if isinstance(elite, Entrant):
            elite = elite.elite(self._strategy.niche(elite))
        while True:
            view = self._locked.get(island) or self._tx.archive.island(self.run.id, island)
            cells = self._cells.get(island, {})
            before = cells.get(elite.cell) or view.cell(elite.cell)
            if epoch != view.epoch:
                return Decision()
            child = elite.generation > 0
            if self._strategy.refuse_clones and child and not before.occupants:
                twin = view.twin(elite)
                if twin is not None:
                    return Decision(clone_of=twin.program)
            after = self._strategy.occupancy(before, elite)
            if after is before:
                return Decision()
            if self._entering or self.run.ranking is Ranking.RELATIVE:
                # The best program is read before the island is locked.
                _ = self.champion if self.run.ranking is Ranking.RELATIVE else self.best
            seen = None if island in self._locked else view
            if self._tx.archive.put_cell(self.run.id, island, after, seen=seen):
                if elite.cell in cells:
                    cells[elite.cell] = after
                return Decision(elite)
            self._lock(island)

    def read(self, cells: Mapping[int, Collection[CellKey]]) -> None:
        """Reads cells of islands that are locked, which are not read again when offered to.

        Args:
          cells: Keys by the island's index.
        """
        for island, keys in cells.items():
            self._cells[island] = self._tx.archive.cells(self.run.id, island, keys)

    def epoch(self, island: int) -> int:
        """Returns the present epoch of an island."""
        return (self._locked.get(island) or self._tx.archive.island(self.run.id, island)).epoch

    def clear(self, island: int, *, reset: bool) -> None:
        """Empties an island that is locked; with `reset` it also enters its next epoch."""
        self._tx.archive.clear_island(self.run.id, island, reset=reset)
        self._cells.pop(island, None)
        self._lock(island)

    def _lock(self, island: int) -> None:
        self._locked[island] = self._tx.archive.island(self.run.id, island, lock=True)


@dataclass(frozen=True, slots=True)
class Offer:
    """Programs of a cohort that its promotion admits to the archive."""

    cohort: Cohort
    entrants: Sequence[Entrant]


def admit(
    ctx: Context, tx: Transaction, run: Run, strategy: Strategy, offers: Sequence[Offer]
) -> None:
    """Offers programs of cohorts to their islands, in the islands' order, and emits the outcome.

    Islands are locked first for seeds, and while the grid is still being learnt, because the grid
    may change while the transaction waits for the locks.
    """
    offers = sorted(offers, key=lambda offer: offer.cohort.island)
    learning = any(axis.provisional or not axis.ranged for axis in run.axes)
    locked: Sequence[IslandView] = ()
    if learning or any(offer.cohort.seeding for offer in offers):
        locked = _lock_islands(tx, run, offers)
        run = _close_ranges(tx, run, offers)
        strategy = ctx.strategy(run)
    entering = [
        member.id
        for offer in offers
        for entrant in offer.entrants
        if (member := offer.cohort.member(entrant.program)) is not None
    ]
    admission = Admission(tx, run, strategy, locked, entering)
    taken = [
        entrant
        for offer in offers
        for entrant in offer.entrants
        if _offer_to_islands(admission, tx, offer.cohort, entrant)
    ]
    if taken:
        _announce_best(admission, tx, taken)


def _lock_islands(tx: Transaction, run: Run, offers: Sequence[Offer]) -> Sequence[IslandView]:
    """Locks the islands of offers in index order."""
    if any(offer.cohort.seeding for offer in offers):
        return tx.archive.islands(run.id, lock=True)
    indexes = sorted({offer.cohort.island for offer in offers})
    return [tx.archive.island(run.id, index, lock=True) for index in indexes]


def _close_ranges(tx: Transaction, run: Run, offers: Sequence[Offer]) -> Run:
    """Returns the run with the grid it has once its islands are locked; closes its open ranges."""
    run = tx.runs.get(run.id)
    if all(axis.ranged for axis in run.axes):
        return run
    seen = [entrant.features for offer in offers for entrant in offer.entrants]
    tx.runs.set_axes(run.id, learnt(run.axes, seen, provisional=True))
    return tx.runs.get(run.id)


def _offer_to_islands(
    admission: Admission, tx: Transaction, cohort: Cohort, entrant: Entrant
) -> bool:
    """Offers a program to each of its islands; returns whether one took it."""
    member = cohort.member(entrant.program)
    draft = member.draft if member else None
    islands = range(admission.run.islands) if cohort.seeding else (cohort.island,)
    taken = False
    for island in islands:
        epoch = draft.epoch if draft else admission.epoch(island)
        decision = admission.offer(entrant, island, epoch)
        taken |= decision.elite is not None
        tx.events.emit(admission.run.id, _outcome(cohort, member, entrant, island, decision))
    return taken


def _outcome(
    cohort: Cohort, member: Member | None, entrant: Entrant, island: int, decision: Decision
) -> Founded | Admitted | Refused:
    """Returns the event of a program that was offered to an island."""
    elite = decision.elite
    reached = Admitted if elite else partial(Refused, clone_of=decision.clone_of)
    return (Founded if cohort.seeding else reached)(
        proposal=member.ordinal if member else None,
        program=entrant.program,
        island=island,
        operator=cohort.operator,
        fitness=entrant.fitness,
        cell=elite.cell if elite else None,
        role=member.role if member else Role.GENERATOR,
    )


def _announce_best(admission: Admission, tx: Transaction, taken: Sequence[Entrant]) -> None:
    """Emits `improved` for each new best of the run; two islands at once may both claim it."""
    if admission.run.ranking is Ranking.RELATIVE:
        _announce_champion(admission, tx)
        return
    run, best = admission.run, admission.best
    for entrant in taken:
        if best is None or entrant.quality > best:
            best = entrant.quality
            settled = run.proposals - tx.proposals.backlog(run.id).unspent
            fact = Improved(program=entrant.program, fitness=entrant.fitness, settled=settled)
            tx.events.emit(run.id, fact)


def _announce_champion(admission: Admission, tx: Transaction) -> None:
    """Emits `crowned` if another program is the champion now, `rerated` if its fitness changed."""
    run, before = admission.run, admission.champion
    after = tx.archive.champion(run.id)
    if after is None:
        return
    if before is not None and after.program == before.program:
        if after.fitness != before.fitness:
            tx.events.emit(run.id, Rerated(program=after.program, fitness=after.fitness))
        return
    settled = run.proposals - tx.proposals.backlog(run.id).unspent
    fact = Crowned(program=after.program, fitness=after.fitness, settled=settled)
    tx.events.emit(run.id, fact)
