"""Admission: the one door to the archive."""

from app.domain.archive import Elite, Entrant, IslandView
from app.domain.strategy import Strategy
from app.ledger import Transaction


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
