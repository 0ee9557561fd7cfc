"""Saving: what models answered is in the ledger before anybody reads it."""

from collections.abc import Sequence

from app.domain.run import Run
from app.engine.context import Context
from app.entries import Turn


def save(ctx: Context, run: Run, turn: Turn) -> None:
    """Saves a turn of one of a run's cohorts, and books it; durable when this returns."""

    def write(turns: Sequence[Turn]) -> None:
        with ctx.store.begin() as tx:
            tx.save_completions(sorted(turns, key=lambda one: one.cohort.id))

    ctx.share(("save", run.id), [turn], write)
