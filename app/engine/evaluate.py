"""Evaluate: trials are run in the sandbox, and their cohorts advance."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import Outcome
from app.domain.run import Run
from app.domain.search.cohort import TrialId
from app.domain.search.shares import next_run
from app.engine.advance import Advance, advance
from app.engine.context import Context, Pace
from app.engine.enqueue import enqueue
from app.engine.lease import claim_shared, leased, save
from app.engine.validation import emit_validated
from app.ports.cohorts import VALIDATE
from app.ports.ledger import Transaction
from app.ports.protocols import Starved, Stop, Stopped
from app.ports.trials import LeasedTrial, TrialQueue, TrialResult

TURNS = 3
"""How often a step looks for a trial that may begin before its message is sent again: for half a
second its thread is not free for another step, such as planning."""
_LOST = "the game was begun {} times and never ended"


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a sandbox, as one message found it.

    Attributes:
      claimed: Trials of one run that were leased: those that the message names, or others.
      left: Trials that the message names and that still wait.
      fleet: The label of theirs.
    """

    claimed: tuple[tuple[Run, LeasedTrial], ...] = ()
    left: tuple[TrialId, ...] = ()
    fleet: str = ""


def evaluate(ctx: Context, *trials: TrialId) -> None:
    """Runs trials of one run, one after the other, and records their evaluations together.

    Where the free place is due to another run, trials of that run are run first; where it is due to
    none that waits, the step waits.  See `app.domain.search.shares`.

    Idempotent: the first evaluation recorded stays.

    Raises:
      Unavailable: See `app.engine.lease.leased`.
    """
    left, fleet = trials, ""
    for _ in range(TURNS):
        places = claim_shared(ctx, "trial", "lease a place", [left], partial(_lease_due, ctx))
        if not places:
            continue
        [place] = places
        if place.claimed:
            _evaluate_leased(ctx, place.claimed)
        left, fleet = place.left, place.fleet
        if not left:
            return
        if not place.claimed:
            ctx.process.wait(ctx.pace.place_seconds)
    ctx.executor.submit("evaluate", left, together=len(trials), fleet=fleet)


def _evaluate_leased(ctx: Context, claimed: Sequence[tuple[Run, LeasedTrial]]) -> None:
    with leased(ctx, "trial", claimed) as work:
        # A run whose recipe is not installed here is paused before it costs anything.
        ctx.recipe(work.run)
        results: list[TrialResult] = []
        for trial, stop in work:
            with work.attempt(trial, stop):
                results.append(evaluate_trial(ctx, work.run, trial, stop))
        if results:
            record_results(ctx, work.run, results)


def _lease_due(ctx: Context, messages: Sequence[Sequence[TrialId]]) -> list[_Place]:
    """Leases trials for each message, in one transaction."""
    with ctx.store.begin() as tx:
        queues = tx.trials.queues([trial for message in messages for trial in message])
        due = []
        for message in messages:
            # A message names trials of one fleet, unless the run's fleets were changed since.
            fleet = next((one.fleet for one in queues if {*one.named} & {*message}), "")
            trials, left = _due([one for one in queues if one.fleet == fleet], message)
            queues = [_without(queue, trials) for queue in queues]
            due.append((trials, left, fleet))
        wanted = [trial for trials, _, _ in due for trial in trials]
        leased = claim_trials(tx, wanted, ctx.pace) if wanted else []
    claimed = {trial.id: (run, trial) for run, trial in leased}
    return [
        _Place(tuple(claimed[trial] for trial in trials if trial in claimed), left, fleet)
        for trials, left, fleet in due
    ]


def _due(
    queues: Sequence[TrialQueue], message: Sequence[TrialId]
) -> tuple[tuple[TrialId, ...], tuple[TrialId, ...]]:
    """Returns the trials that a place takes now, and those of the message that still wait then."""
    mine = tuple(trial for queue in queues for trial in queue.named if trial in message)
    if not mine:
        return (), ()
    run = next_run([queue.claimant for queue in queues], queues[0].places)
    if run is None:
        return (), mine
    [queue] = [queue for queue in queues if queue.claimant.run == run]
    if set(mine) <= set(queue.named):
        return mine, ()
    return queue.waiting[: queue.batch], mine


def _without(queue: TrialQueue, trials: Sequence[TrialId]) -> TrialQueue:
    """Returns a queue once a place has taken these trials, if they are of its run."""
    waiting = tuple(trial for trial in queue.waiting if trial not in trials)
    named = tuple(trial for trial in queue.named if trial not in trials)
    if (waiting, named) == (queue.waiting, queue.named):
        return queue
    at_work = queue.claimant.at_work + 1
    claimant = replace(queue.claimant, at_work=at_work, waiting=bool(waiting or named))
    return replace(queue, claimant=claimant, waiting=waiting, named=named)


def claim_trials(
    tx: Transaction, trials: Sequence[TrialId], pace: Pace
) -> list[tuple[Run, LeasedTrial]]:
    """Leases trials."""
    return tx.trials.claim(trials, pace.lease_seconds, attempts=pace.attempts)


def evaluate_trial(ctx: Context, run: Run, trial: LeasedTrial, stop: Stop) -> TrialResult:
    """Runs a trial in the sandbox; one that was begun too often is recorded as lost.

    Raises:
      Stopped: It was withdrawn.
      Starved: The machine had too little processor time for it, and it may be tried again.
    """
    if stop.asked:
        raise Stopped("the trial was withdrawn before it began")
    problem = ctx.measured(run)
    measured = replace(trial.trial, stage=trial.trial.measures)
    if trial.attempt > ctx.pace.attempts:
        lost = Outcome(None, Failure(FailureKind.TIMEOUT, _LOST.format(ctx.pace.attempts)))
        evaluation = problem.interpret(measured, trial.programs, lost)
        return TrialResult(trial.id, trial.cohort, evaluation)
    job = problem.prepare(measured, trial.programs)
    seed = (job.seed + trial.trial.repetition) % 2**32
    watch = partial(ctx.process.show_moves, trial.id) if job.game else None
    ticket = f"{run.id} {trial.id}"
    job = replace(job, seed=seed, reuse=run.rules.search.reuse, watch=watch, ticket=ticket)
    stage, attempt = trial.trial.stage, trial.attempt
    with ctx.tracing.span("evaluate", run, trials=[trial.id], stage=stage, attempt=attempt) as note:
        try:
            outcome = ctx.sandbox.run(job, stop)
        except Starved as error:
            if trial.attempt < ctx.pace.attempts:
                raise
            outcome = error.outcome
        note(wall_seconds=outcome.wall_seconds, reused=outcome.reused)
        evaluation = problem.interpret(measured, trial.programs, outcome)
        if evaluation.failure is not None:
            note(failure=evaluation.failure.kind)
    if outcome.reused:
        saved = outcome.wall_seconds
        evaluation = replace(
            evaluation, saved_seconds=saved, wall_seconds=0.0, cpu_seconds=0.0, boot_seconds=0.0
        )
    return TrialResult(trial.id, trial.cohort, evaluation)


def record_results(ctx: Context, run: Run, results: Sequence[TrialResult]) -> None:
    """Records the first result of each trial, and advances the cohorts."""
    recording, enqueueing = partial(_record, ctx), partial(enqueue, ctx)
    with ctx.tracing.span("record", run, trials=[result.id for result in results]):
        save(ctx, run, ("record", run.id), results, recording, enqueueing)


def _record(ctx: Context, results: Sequence[TrialResult]) -> list[Advance | None]:
    with ctx.store.begin() as tx:
        recorded = tx.trials.record(results)
        if recorded is None:
            return [None for _ in results]
        run, cohorts = recorded
        if run.plans_nothing:
            tx.leases.announce()
            return [None for _ in results]
        validating = [cohort for cohort in cohorts if cohort.operator == VALIDATE]
        searching = [cohort for cohort in cohorts if cohort.operator != VALIDATE]
        advances = emit_validated(tx.events, run, validating)
        if searching:
            advances |= advance(ctx, tx, run, ctx.strategy(run), searching)
        if run.reason:
            tx.runs.explain(run.id, "")
    return [advances.pop(result.cohort, None) for result in results]
