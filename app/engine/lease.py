"""Leases: a step claims its work, keeps it while it works, and releases what it could not do."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from app.domain.events import Broken, Cancelled, Paused
from app.domain.problem import EvaluatorBroken
from app.domain.run import Run, RunState
from app.domain.secrets import redacted
from app.engine.context import Context, Pace
from app.engine.process import LeaseKind
from app.ports.leases import Exhausted
from app.ports.ledger import Transaction
from app.ports.protocols import Misconfigured, Starved, Stop, Stopped, Unavailable, Unwritable


class Subject(Protocol):
    """What a step leases: proposals or a trial."""

    @property
    def id(self) -> int: ...


S = TypeVar("S", bound=Subject)
Wanted = TypeVar("Wanted")
Result = TypeVar("Result")
Fault: TypeAlias = Unavailable | EvaluatorBroken
"""Why a step cannot go on with any of its subjects."""
_GOING = (RunState.RUNNING, RunState.PAUSED)


class Postponed(Exception):
    """A subject has no result yet: another worker goes on with it, or a later message."""


@dataclass(slots=True)
class Work(Generic[S]):
    """Subjects of one run that a step has leased; iteration ends early at a fault.

    Attributes:
      left: The ids of subjects that were not attempted, or whose attempt met a fault.
      withdrawn: The ids of those that were withdrawn meanwhile.
      fault: Why the step cannot go on; None while it can.
    """

    run: Run
    subjects: Sequence[S]
    stops: Sequence[Stop]
    left: list[int] = field(init=False)
    withdrawn: list[int] = field(default_factory=list)
    fault: Fault | None = None

    def __post_init__(self) -> None:
        self.left = [subject.id for subject in self.subjects]

    def __iter__(self) -> Iterator[tuple[S, Stop]]:
        """Yields each subject with the stop that its attempt is to obey."""
        for subject, stop in zip(self.subjects, self.stops, strict=True):
            if self.fault is None:
                yield subject, stop

    @contextmanager
    def attempt(self, subject: S, stop: Stop) -> Iterator[None]:
        """Ends the block where there is no result; a fault is raised when the lease is released."""
        try:
            yield
        except (Postponed, Stopped):
            if stop.asked:
                self.withdrawn.append(subject.id)
        except (Unavailable, EvaluatorBroken) as error:
            self.fault = error
            return
        self.left.remove(subject.id)


def lease(
    ctx: Context,
    kind: LeaseKind,
    ids: Sequence[int],
    claim: Callable[[Transaction, Sequence[int], Pace], Sequence[tuple[Run, S]]],
) -> list[tuple[Run, S]]:
    """Leases subjects of one run that are free; see `claim_shared`.

    Args:
      ctx: The process's context.
      kind: What is leased.
      ids: The subjects.
      claim: Leases them in a transaction.
    """

    def claim_each(ids: Sequence[int]) -> list[tuple[Run, S] | None]:
        """Returns each subject with its run, the first time that its id is named; else None."""
        with ctx.store.begin() as tx:
            free = {subject.id: (run, subject) for run, subject in claim(tx, ids, ctx.pace)}
        return [free.pop(subject, None) for subject in ids]

    claimed = claim_shared(ctx, kind, f"lease {kind}s", ids, claim_each)
    return [subject for subject in claimed if subject is not None]


def claim_shared(
    ctx: Context,
    kind: LeaseKind,
    name: str,
    wanted: Sequence[Wanted],
    claim: Callable[[Sequence[Wanted]], Sequence[Result]],
) -> list[Result]:
    """Claims what is wanted, in a transaction that threads share, while the ledger has no room too.

    Returns:
      A result each; [] where a subject was attempted too often, by which its run has failed.

    Raises:
      Unavailable: The ledger could not be reached; trying again later is safe.
    """
    try:
        claiming = partial(ctx.process.share, name, wanted, claim)
        return outlast(ctx, claiming, ctx.pace.redeliver_seconds)
    except Exhausted as error:
        stop(ctx, error.run, RunState.FAILED, f"{kind} {error.subject}: {error}")
        return []


@contextmanager
def leased(ctx: Context, kind: LeaseKind, claimed: Sequence[tuple[Run, S]]) -> Iterator[Work[S]]:
    """Keeps the leases of subjects while their step works on them, and releases the rest.

    Each subject is to be tried in `Work.attempt`; then the results are to be saved together.  Where
    the step cannot go on, the leases of what it has not done are given back; so are those of what
    was withdrawn.  The run is paused where a person has to act, and fails where its evaluator
    cannot be used.

    Args:
      ctx: The process's context.
      kind: What is leased.
      claimed: Subjects of one run; at least one.

    Raises:
      Unavailable: A port could not be reached; trying again later is safe.
    """
    run, subjects = claimed[0][0], [subject for _, subject in claimed]
    with ctx.process.count_work(run.id):
        with ExitStack() as kept:
            keep = ctx.process.keep_lease
            stops = [kept.enter_context(keep(kind, subject.id)) for subject in subjects]
            work = Work(run, subjects, stops)
            try:
                yield work
            except (Unavailable, EvaluatorBroken) as error:
                work.fault = error
                # Not at once where replies were paid for: another worker may have the lease now.
                if kind == "trial":
                    work.left = [subject.id for subject in subjects]
        if work.withdrawn:
            with ctx.store.begin() as tx:
                tx.leases.release(*by_kind(kind, work.withdrawn), ctx.pace.retry_seconds)
        if work.fault is not None:
            # Not for as long as another worker takes to lease them, who would lose them by this.
            giving_back = partial(_give_back, ctx, kind, work, work.fault)
            outlast(ctx, giving_back, ctx.pace.lease_seconds / 2)
            if isinstance(work.fault, EvaluatorBroken):
                reason = f"the evaluator of {run.problem_name!r} is broken: {work.fault}"
                stop(ctx, run.id, RunState.FAILED, reason)
            elif isinstance(work.fault, Misconfigured):
                stop(ctx, run.id, RunState.PAUSED, str(work.fault))
            else:
                raise work.fault


def _give_back(ctx: Context, kind: LeaseKind, work: Work[S], fault: Fault) -> None:
    """Releases what a step could not go on with, and stores why the run waits."""
    # The attempt of a starved trial counts: the last one is recorded, whatever came of it.
    tried = work.left[:1] if isinstance(fault, Starved) else []
    with ctx.store.begin() as tx:
        tx.leases.release(*by_kind(kind, work.left[len(tried) :]), ctx.pace.retry_seconds)
        tx.leases.release([], tried, ctx.pace.retry_seconds, counted=True)
        if isinstance(fault, Unavailable):
            explain(tx, work.run.id, fault)


def by_kind(kind: LeaseKind, ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Returns proposals and trials."""
    return (ids, ()) if kind == "proposal" else ((), ids)


def outlast(ctx: Context, act: Callable[[], Result], seconds: float) -> Result:
    """Returns the result of a transaction, which is tried again while the ledger has no room.

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
            ctx.process.wait(pause)


def save(
    ctx: Context,
    run: Run,
    kind: Hashable,
    results: Sequence[Wanted],
    write: Callable[[Sequence[Wanted]], Sequence[Result]],
    after: Callable[[Sequence[Result]], None],
) -> None:
    """Saves results while their leases are kept; the run says why that takes long.

    Args:
      ctx: The process's context.
      run: Whose results they are.
      kind: What is saved; see `Process.share`.
      results: The results.
      write: Saves them in one transaction; idempotent.
      after: Called once they are saved.
    """
    saving = partial(ctx.process.share, kind, results, write, after)
    try:
        saving()
    except Unwritable as error:
        with suppress(Unavailable), ctx.store.begin() as tx:
            explain(tx, run.id, error)
        outlast(ctx, saving, ctx.pace.redeliver_seconds)


def explain(tx: Transaction, run: int, fault: Unavailable) -> None:
    """Stores what a running run waits for, until something of it is recorded again."""
    tx.runs.explain(run, f"waiting: {redacted(str(fault))}")


def stop(ctx: Context, run: int, state: RunState, reason: str) -> None:
    """Pauses or fails a run that is going, with its event, once; the reason loses secrets."""
    fact = Paused if state is RunState.PAUSED else Broken
    with ctx.store.begin() as tx:
        change_state(tx, run, state, fact(reason=redacted(reason)))


def change_state(
    tx: Transaction, run: int, state: RunState, fact: Paused | Broken | Cancelled
) -> bool:
    """Pauses a run that runs, or ends one that is going, with its event, whose reason is stored.

    Returns:
      False if the run was in another state: nothing is stored then.
    """
    before = (RunState.RUNNING,) if state is RunState.PAUSED else _GOING
    changed = tx.runs.set_state(run, before, state, fact.reason)
    if changed:
        tx.events.emit(run, fact)
        if state.final:
            tx.leases.withdraw()
    return changed
