"""Faults of the machinery and of the problem: the run says why it stopped, and nothing is lost."""

from collections.abc import Sequence
from typing import Literal

from app.domain.events import Broken, Paused
from app.domain.run import Run, RunState
from app.domain.search.cohort import TrialId
from app.engine.context import Context
from app.ports.ledger import Exhausted
from app.ports.protocols import Misconfigured

_GOING = (RunState.RUNNING, RunState.PAUSED)


def broken(ctx: Context, kind: Literal["cohort", "trial"], error: Exhausted) -> None:
    """Fails the run of a step that was attempted too often without an end."""
    stop(ctx, error.run, RunState.FAILED, f"{kind} {error.subject}: {error}")


def evaluator_broken(ctx: Context, run: Run, trials: Sequence[TrialId], error: ValueError) -> None:
    """Fails a run whose evaluator cannot be used; its trials' leases are given back."""
    with ctx.store.begin() as tx:
        tx.leases.release([], trials, ctx.pace.retry_seconds)
    stop(ctx, run.id, RunState.FAILED, f"the evaluator of {run.problem_name!r} is broken: {error}")


def misconfigured(ctx: Context, run: Run, error: Misconfigured) -> None:
    """Pauses a run whose next step needs a person, rather than burn its budget."""
    stop(ctx, run.id, RunState.PAUSED, str(error))


def stop(ctx: Context, run: int, state: RunState, reason: str) -> None:
    """Moves a run that is going to `state`, with its event, once."""
    fact = Paused if state is RunState.PAUSED else Broken
    before = (RunState.RUNNING,) if state is RunState.PAUSED else _GOING
    with ctx.store.begin() as tx:
        if tx.runs.set_state(run, before, state, reason):
            tx.events.emit(run, fact(reason=reason))
