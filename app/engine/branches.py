"""Branches: candidates of a pattern over folders, as trials of a run that plans nothing.

The process of the pattern adds them, reads their results and withdraws those that it does not need
any more.  Leases, redelivery and places are those of all trials.  The run ends as soon as no
candidate is left, and goes on with the next one, so that a pattern whose process dies leaves
nothing behind but results, which the next pattern of the same group takes over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.evaluation import Evaluation, Trial
from app.domain.events import Finished, Started
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.run import Run, RunState
from app.domain.search.cohort import TrialId
from app.domain.search.fleets import FleetRules
from app.engine.context import Context
from app.engine.enqueue import enqueue_trials
from app.ports.cohorts import BRANCH
from app.ports.ledger import Transaction
from app.ports.runs import NewRun

_GOING = (RunState.RUNNING, RunState.FINISHED)


class GroupTaken(ValueError):
    """A group cannot be gone on with; the message says why."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a group's candidates.

    Attributes:
      results: The evaluations of those that have ended.
      halted: Why the others will not end; "" where they will.
    """

    results: Mapping[TrialId, Evaluation]
    halted: str = ""


def open_group(ctx: Context, problem: Problem, new: NewRun) -> tuple[Run, dict[Trial, TrialId]]:
    """Creates the run of a group, or takes over that of an earlier process.

    Returns:
      The run, and its candidates so far.

    Raises:
      GroupTaken: A run of the name is no group, or one of another folder, or was stopped.
    """
    with ctx.store.begin() as tx:
        run = tx.runs.named(new.name)
        if run is None:
            tx.problems.add(problem)
            run = tx.runs.add(new)
            tx.events.emit(run.id, Started(seed=run.seed, budget=0, operators={}))
            return run, {}
        if not run.plans_nothing:
            raise GroupTaken(f"{new.name!r} is a run: give the group another name")
        if run.problem != problem.digest:
            raise GroupTaken(
                f"the group {new.name!r} began on other files or with other limits: give another "
                f"name"
            )
        if run.state not in _GOING:
            raise GroupTaken(f"the group {new.name!r} is {run.state.value}: {run.reason}")
        return run, tx.trials.of_operator(run.id, BRANCH)


def add(ctx: Context, run: int, candidate: Program, trial: Trial) -> TrialId:
    """Adds a candidate and enqueues it.

    Raises:
      GroupTaken: The group was stopped or deleted meanwhile.
    """
    with ctx.store.begin() as tx:
        if halted := _halted(tx, run):
            raise GroupTaken(halted)
        tx.programs.put([candidate])
        cohort = tx.cohorts.add_without_members(run, BRANCH)
        again = ctx.pace.redeliver_seconds
        added = tx.trials.add([(cohort, trial)], redeliver_seconds=again, fleets=FleetRules())
        if not tx.runs.set_state(run, _GOING, RunState.RUNNING):
            raise GroupTaken(_halted(tx, run))
    enqueue_trials(ctx, added)
    return added[0].id


def withdraw(ctx: Context, trials: Sequence[TrialId]) -> None:
    """Ends candidates: none of them begins any more, and those at work are stopped."""
    with ctx.store.begin() as tx:
        tx.leases.withdraw_trials(trials)


def standing(ctx: Context, run: int, trials: Sequence[TrialId]) -> Standing:
    """Returns which candidates have ended, and why the others will not."""
    with ctx.store.begin() as tx:
        return Standing(tx.trials.results(trials), _halted(tx, run))


def _halted(tx: Transaction, run: int) -> str:
    """Returns why no candidate of a group begins any more; "" where one may."""
    try:
        stored = tx.runs.get(run)
    except LookupError:
        return "the group was deleted"
    going = stored.state in _GOING
    return "" if going else f"the group {stored.name!r} is {stored.state.value}: {stored.reason}"


def end_idle(tx: Transaction, run: Run) -> None:
    """Ends the run of a group that has no candidate left."""
    # The lock comes first, so that a candidate that is being added is seen.
    if not tx.runs.goes_on(run.id) or tx.trials.unfinished(run.id):
        return
    reason = "no candidate is left"
    if tx.runs.set_state(run.id, (RunState.RUNNING,), RunState.FINISHED, reason):
        tx.events.emit(run.id, Finished(proposals=0, reason=reason))
