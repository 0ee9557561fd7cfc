"""Ringing: after the save, and never instead of it."""

from app.domain.run import Run
from app.engine.advance import Advance
from app.engine.context import Context, due_to_produce


def ring(ctx: Context, run: Run, came: Advance) -> None:
    """Rings for the trials that were added, and for planning when enough has settled."""
    if came.trials:
        ctx.executor.submit("evaluate", came.trials, together=run.limits.evaluate_batch)
    if came.opinions:
        ctx.executor.submit("judge", came.opinions)
    if came.settled and due_to_produce(run, came.settled):
        ctx.executor.submit("produce", [run.id])
