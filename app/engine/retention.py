"""Retention: runs that are too old or too many are deleted, and what was deleted is swept."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from app.ports.protocols import Store, Unavailable
from app.ports.retention import DeletionReason, StoredRun

BATCH = 200
"""Proposals of one transaction: some hundredths of a second of Postgres."""
_DAY = 86400.0
_TRIES = 20
"""Attempts at a batch while others store programs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a ledger keeps; None: everything.

    Attributes:
      days: Since the last event of a run that has ended.
      size_bytes: Of the database.
      prompt_days: Since the last event of a run, for its logged prompts.
    """

    days: float | None = None
    size_bytes: float | None = None
    prompt_days: float | None = None


@dataclass(frozen=True, slots=True)
class Retired:
    """A run that has reached a limit, and the limit."""

    run: StoredRun
    reason: DeletionReason


def retire(store: Store, limits: Limits) -> list[Retired]:
    """Deletes the runs that are too old; without one, the oldest if the database is too large.

    Only runs that have ended and are not kept.  One at a time goes for its size: the next one when
    the room that it leaves is used.
    """
    retired = []
    if limits.days is not None:
        for run in _ended(store, limits.days * _DAY):
            if _delete(store, run.id, "age"):
                retired.append(Retired(run, "age"))
    if not retired and limits.size_bytes is not None:
        with store.begin() as tx:
            too_large = tx.retention.grown_bytes() > limits.size_bytes
        oldest = _ended(store, 0.0)[:1] if too_large else []
        retired = [Retired(run, "size") for run in oldest if _delete(store, run.id, "size")]
    return retired


def _ended(store: Store, older_seconds: float) -> list[StoredRun]:
    with store.begin() as tx:
        return tx.retention.stored(ended=True, older_seconds=older_seconds)


def _delete(store: Store, run: int, reason: DeletionReason) -> bool:
    with store.begin() as tx:
        return tx.retention.delete(run, reason)


def sweep(store: Store, goes_on: Callable[[], bool] = lambda: True) -> Counter[str]:
    """Removes what deleted runs leave behind, in transactions of some hundred proposals.

    Any number of processes may do it at once, and any may die.

    Args:
      store: The ledger.
      goes_on: Asked before each transaction.

    Returns:
      Numbers of rows by table.

    Raises:
      Unavailable: The ledger cannot be reached, or stores programs without a pause.
    """
    removed: Counter[str] = Counter()
    with store.begin() as tx:
        unswept = tx.retention.unswept()
    for run in unswept:
        while goes_on():
            batch = _sweep(store, run)
            if not batch:
                break
            removed.update(batch)
    while goes_on():
        with store.begin() as tx:
            batch = Counter(tx.retention.forget(BATCH))
        if not batch:
            break
        removed.update(batch)
    return removed


def _sweep(store: Store, run: int) -> Counter[str]:
    tries = 0
    while True:
        try:
            with store.begin() as tx:
                return Counter(tx.retention.sweep(run, BATCH))
        except Unavailable:
            tries += 1
            if tries == _TRIES:
                raise


def strip_prompts(
    store: Store, limits: Limits, goes_on: Callable[[], bool] = lambda: True
) -> Counter[str]:
    """Removes the logged prompts of runs that ended long enough ago; returns how many."""
    removed: Counter[str] = Counter()
    while limits.prompt_days is not None and goes_on():
        with store.begin() as tx:
            stripped = tx.retention.strip_prompts(limits.prompt_days * _DAY, BATCH)
        if not stripped:
            break
        removed["prompts"] += stripped
    return removed
