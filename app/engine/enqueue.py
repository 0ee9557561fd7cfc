"""Enqueueing: messages for the next steps, sent after the transaction that made them due."""

from collections import Counter
from collections.abc import Collection, Sequence

from app.domain.prompting.judging import STAGE
from app.domain.run import Run
from app.domain.search.cohort import Member
from app.domain.search.fleets import queue_of
from app.engine.advance import Advance
from app.engine.context import Context
from app.engine.inside import end_unwanted
from app.ports.protocols import Step
from app.ports.trials import WaitingTrial


def enqueue(ctx: Context, advances: Sequence[Advance | None]) -> None:
    """Enqueues the trials that cohorts of one run have gained, and planning when it is due."""
    made = [advance for advance in advances if advance is not None]
    if not made:
        return
    run = made[0].run
    trials = [trial for advance in made for trial in advance.trials]
    enqueue_trials(ctx, trials, run.limits.evaluate_batch)
    settled = [member for advance in made for member in advance.settled]
    ctx.tracing.settled(run, [member.id for member in settled])
    if settled and run.rules.nested is not None:
        end_unwanted(ctx, run.id)
    closed = any(advance.closed for advance in made)
    if closed or (settled and due_to_produce(run, settled)):
        ctx.executor.submit("produce", [run.id])


def enqueue_trials(ctx: Context, trials: Sequence[WaitingTrial], together: int = 1) -> None:
    """Enqueues each trial for its step.

    Args:
      ctx: The process's context.
      trials: The trials, of one run.
      together: How many trials one message may name, where a sandbox runs them.
    """
    fleets: dict[Step, dict[int, str]] = {"evaluate": {}, "judge": {}}
    for trial in sorted(trials, key=lambda trial: trial.id):
        fleets[step_of(trial)][trial.id] = trial.fleet
    ctx.enqueue("evaluate", fleets["evaluate"], together=together)
    ctx.enqueue("judge", fleets["judge"])


def redeliver(ctx: Context, run: int, full: Collection[str] = ()) -> None:
    """Enqueues unfinished work whose lease ran out: a queue that is lost whole does no harm.

    Args:
      ctx: The world.
      run: The run.
      full: Queues that get no message; see `full_queues`.
    """
    with ctx.store.begin() as tx:
        proposals, trials = tx.leases.overdue(run, ctx.pace.redeliver_seconds)
    due = {one: label for one, label in proposals.items() if queue_of("gpu", label) not in full}
    ctx.enqueue("generate", due)
    kinds = {"judge": "gpu", "evaluate": "cpu"}
    enqueue_trials(
        ctx, [one for one in trials if queue_of(kinds[step_of(one)], one.fleet) not in full]
    )


def full_queues(ctx: Context) -> frozenset[str]:
    """Returns the queues with a message for each step that waits, so that they need no other.

    A queue without workers, or with slow ones, would otherwise grow with each redelivery.  Its
    messages may repeat each other, and one may be lost: a worker takes what is there first, and
    then it is not full.
    """
    with ctx.store.begin() as tx:
        waiting = Counter[tuple[str, str]]()
        for demand in tx.workers.demand():
            waiting[demand.queue, demand.tag] += demand.waiting
    steps: dict[str, Step] = {"gpu": "generate", "cpu": "evaluate"}
    return frozenset(
        queue_of(kind, label)
        for (kind, label), n in waiting.items()
        if n and ctx.executor.queued(steps[kind], label) >= n
    )


def step_of(trial: WaitingTrial) -> Step:
    """Returns the step that measures a trial."""
    return "judge" if trial.stage == STAGE else "evaluate"


def produce_stride(run: Run) -> int:
    """Returns after how many settlements it is worth planning again: an eighth of the buffer."""
    return max(1, run.limits.generating // 8)


def due_to_produce(run: Run, settled: Sequence[Member]) -> bool:
    """Returns whether planning is due after these members have settled."""
    stride = produce_stride(run)
    left = run.budget.proposals - run.proposals
    return left <= 0 or any(member.seed or member.ordinal % stride == 0 for member in settled)
