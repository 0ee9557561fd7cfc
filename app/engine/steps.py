"""The steps by name: what a Celery task or an inline executor calls with one id."""

from app.engine.context import Context
from app.engine.enqueue import enqueue_trials
from app.engine.evaluate import evaluate
from app.engine.generate import generate
from app.engine.judge import judge
from app.engine.produce import produce

__all__ = ["evaluate", "generate", "judge", "produce", "produce_all", "reap", "reap_all"]


def reap(ctx: Context, run: int) -> None:
    """Enqueues unfinished work whose lease ran out: a queue that is lost whole does no harm."""
    with ctx.store.begin() as tx:
        proposals, trials = tx.leases.overdue(run, ctx.pace.redeliver_seconds)
    ctx.executor.submit("generate", proposals)
    enqueue_trials(ctx, trials)


def produce_all(ctx: Context) -> None:
    """Plans for every running run."""
    for run in _running(ctx):
        produce(ctx, run)


def reap_all(ctx: Context) -> None:
    """Enqueues unfinished work of every running run; see `reap`."""
    for run in _running(ctx):
        reap(ctx, run)


def _running(ctx: Context) -> list[int]:
    with ctx.store.begin() as tx:
        return tx.runs.running()
