"""The steps by name: what a Celery task or an inline executor calls with one id."""

from collections.abc import Callable, Collection, Sequence

from app.domain.run import RunState
from app.engine.context import Context
from app.engine.enqueue import full_queues
from app.engine.enqueue import redeliver as reap
from app.engine.evaluate import evaluate
from app.engine.generate import generate
from app.engine.judge import judge
from app.engine.lease import by_kind, stop
from app.engine.process import LeaseKind
from app.engine.produce import produce

__all__ = ["evaluate", "generate", "judge", "produce", "produce_all", "reap", "reap_all"]


def produce_all(ctx: Context, plan: Callable[[Context, int], None] = produce) -> bool:
    """Plans for every running run by `plan`, oldest first; returns whether there is one."""
    running = _running(ctx)
    for run in running:
        plan(ctx, run)
    return bool(running)


def reap_all(ctx: Context, enqueue: Callable[[Context, int, Collection[str]], None] = reap) -> None:
    """Enqueues unfinished work of every running run by `enqueue`; see `enqueue.redeliver`."""
    running = _running(ctx)
    full = full_queues(ctx) if running else frozenset()
    for run in running:
        enqueue(ctx, run, full)


def interrupt(ctx: Context, leased: LeaseKind | None, subjects: Sequence[int], reason: str) -> None:
    """Pauses the run of a step that raised what no step should, and gives its leases back.

    Args:
      ctx: The process's context.
      leased: What the step leases; None for a step of a whole run.
      subjects: What it was run for: proposals, trials, or runs.
      reason: What to store as the reason of the pause.
    """
    runs = subjects
    if leased is not None:
        proposals, trials = by_kind(leased, subjects)
        with ctx.store.begin() as tx:
            runs = tx.leases.runs(proposals, trials)
            tx.leases.release(proposals, trials, ctx.pace.retry_seconds)
    for run in runs:
        stop(ctx, run, RunState.PAUSED, reason)


def _running(ctx: Context) -> list[int]:
    with ctx.store.begin() as tx:
        return tx.runs.running()
