"""Attempts: what all steps have in common that lease their work, whatever they do with it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Protocol, TypeVar

from app.domain.events import Broken, Paused
from app.domain.problem import EvaluatorBroken
from app.domain.run import Run, RunState
from app.domain.secrets import redacted
from app.engine.context import Context, LeaseKind, Pace
from app.ports.ledger import Exhausted, Transaction
from app.ports.protocols import Misconfigured, Starved, Stop, Unavailable, Unwritable


class Subject(Protocol):
    """What a step leases: proposals or a trial."""

    @property
    def id(self) -> int: ...


S = TypeVar("S", bound=Subject)
Result = TypeVar("Result")
_GOING = (RunState.RUNNING, RunState.PAUSED)


def attempt(
    ctx: Context,
    kind: LeaseKind,
    ids: Sequence[int],
    claim: Callable[[Transaction, Sequence[int], Pace], Sequence[tuple[Run, S]]],
    perform: Callable[[Context, Run, Sequence[S], Sequence[Stop]], Iterator[Result | None]],
    save: Callable[[Context, Run, Sequence[Result]], None],
) -> None:
    """Leases subjects that are free, performs the step on each and saves the results together.

    Leases are renewed meanwhile.  Where the step cannot go on, what was performed is saved, and the
    leases of the rest are given back; so are those of what was withdrawn.  The run is paused where
    a person has to act; it fails where its evaluator cannot be used, or where a subject was
    attempted too often.

    Args:
      ctx: The process's context.
      kind: What is leased.
      ids: Subjects of one run.
      claim: Leases them in a transaction.
      perform: Yields a result for each subject, in order; None where there is nothing to save.
        It is given what asks it to stop, for each subject, and goes on with the next one then.
      save: Saves the results; idempotent.

    Raises:
      Unavailable: A port could not be reached; trying again later is safe.
    """
    try:
        claiming = partial(ctx.share, f"lease {kind}s", ids, partial(_leased, ctx, claim))
        leased = outlasting(ctx, claiming, ctx.pace.redeliver_seconds)
    except Exhausted as error:
        stop(ctx, error.run, RunState.FAILED, f"{kind} {error.subject}: {error}")
        return
    mine = [subject for subject in leased if subject is not None]
    if mine:
        carry_out(ctx, kind, mine, perform, save)


def carry_out(
    ctx: Context,
    kind: LeaseKind,
    leased: Sequence[tuple[Run, S]],
    perform: Callable[[Context, Run, Sequence[S], Sequence[Stop]], Iterator[Result | None]],
    save: Callable[[Context, Run, Sequence[Result]], None],
) -> None:
    """Performs a step on subjects of one run that are leased; see `attempt`."""
    run, subjects = leased[0][0], [subject for _, subject in leased]
    with ctx.work(run.id):
        left, withdrawn, fault = _performed(ctx, kind, run, subjects, perform, save)
        if withdrawn:
            proposals, trials = _by_kind(kind, withdrawn)
            with ctx.store.begin() as tx:
                tx.leases.release(proposals, trials, ctx.pace.retry_seconds)
        if fault is None:
            return
        # Not for as long as another worker takes to lease them, who would lose them by this.
        giving_back = partial(_give_back, ctx, kind, run, left, fault)
        outlasting(ctx, giving_back, ctx.pace.lease_seconds / 2)
        if isinstance(fault, EvaluatorBroken):
            reason = f"the evaluator of {run.problem_name!r} is broken: {fault}"
            stop(ctx, run.id, RunState.FAILED, reason)
        elif isinstance(fault, Misconfigured):
            stop(ctx, run.id, RunState.PAUSED, str(fault))
        else:
            raise fault


def outlasting(ctx: Context, act: Callable[[], Result], seconds: float) -> Result:
    """Returns what a transaction returns, which is tried again while the ledger has no room.

    Without that the message of the step, or its lease, would be lost until `reap` finds it.

    Raises:
      Unavailable: It cannot be reached, or had no room for so many seconds.
    """
    pause, waited_seconds = ctx.pace.retry_seconds, 0.0
    while True:
        try:
            return act()
        except Unwritable:
            waited_seconds += pause
            if pause <= 0.0 or waited_seconds > seconds:
                raise
            ctx.wait(pause)


def _save(ctx: Context, run: Run, save: Callable[[], None]) -> None:
    """Saves results while their leases are kept; the run says why that takes long."""
    try:
        save()
    except Unwritable as error:
        with suppress(Unavailable), ctx.store.begin() as tx:
            explain(tx, run.id, error)
        outlasting(ctx, save, ctx.pace.redeliver_seconds)


def _give_back(
    ctx: Context,
    kind: LeaseKind,
    run: Run,
    left: Sequence[int],
    fault: Unavailable | EvaluatorBroken,
) -> None:
    """Releases what a step could not go on with, and stores why the run waits."""
    # The attempt of a starved trial counts: the last one is recorded, whatever came of it.
    tried = left[:1] if isinstance(fault, Starved) else []
    proposals, trials = _by_kind(kind, left[len(tried) :])
    with ctx.store.begin() as tx:
        tx.leases.release(proposals, trials, ctx.pace.retry_seconds)
        tx.leases.release([], tried, ctx.pace.retry_seconds, counted=True)
        if isinstance(fault, Unavailable):
            explain(tx, run.id, fault)


def _leased(
    ctx: Context,
    claim: Callable[[Transaction, Sequence[int], Pace], Sequence[tuple[Run, S]]],
    ids: Sequence[int],
) -> list[tuple[Run, S] | None]:
    """Returns each subject with its run, the first time that its id is named; else None."""
    with ctx.store.begin() as tx:
        leased = {subject.id: (run, subject) for run, subject in claim(tx, ids, ctx.pace)}
    return [leased.pop(subject, None) for subject in ids]


def _performed(
    ctx: Context,
    kind: LeaseKind,
    run: Run,
    subjects: Sequence[S],
    perform: Callable[[Context, Run, Sequence[S], Sequence[Stop]], Iterator[Result | None]],
    save: Callable[[Context, Run, Sequence[Result]], None],
) -> tuple[list[int], list[int], Unavailable | EvaluatorBroken | None]:
    """Returns subjects that are left, those that were withdrawn, and why the step cannot go on."""
    results: list[Result] = []
    left = [subject.id for subject in subjects]
    withdrawn: list[int] = []
    fault: Unavailable | EvaluatorBroken | None = None
    with ExitStack() as kept:
        stops = [kept.enter_context(ctx.keep(kind, subject.id)) for subject in subjects]
        try:
            # This pauses a run whose recipe is not installed before the run costs anything.
            ctx.recipe(run)
            for withdrawal, result in zip(stops, perform(ctx, run, subjects, stops), strict=True):
                subject = left.pop(0)
                if result is not None:
                    results.append(result)
                elif withdrawal.asked:
                    withdrawn.append(subject)
        except (Unavailable, EvaluatorBroken) as error:
            fault = error
        if results:
            try:
                _save(ctx, run, partial(save, ctx, run, results))
            except Unavailable as error:
                fault = error
                # Not at once where replies were paid for: another worker may have the lease now.
                if kind == "trial":
                    left = [subject.id for subject in subjects]
    return left, withdrawn, fault


def _by_kind(kind: LeaseKind, ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Returns proposals and trials."""
    return (ids, ()) if kind == "proposal" else ((), ids)


def explain(tx: Transaction, run: int, fault: Unavailable) -> None:
    """Stores what a running run waits for, until something of it is recorded again."""
    tx.runs.explain(run, f"waiting: {redacted(str(fault))}")


def stop(ctx: Context, run: int, state: RunState, reason: str) -> None:
    """Moves a run that is going to `state`, with its event, once; the reason loses secrets."""
    reason = redacted(reason)
    fact = Paused(reason=reason) if state is RunState.PAUSED else Broken(reason=reason)
    before = (RunState.RUNNING,) if state is RunState.PAUSED else _GOING
    with ctx.store.begin() as tx:
        if tx.runs.set_state(run, before, state, reason):
            tx.events.emit(run, fact)
            if state.final:
                tx.leases.withdraw()
