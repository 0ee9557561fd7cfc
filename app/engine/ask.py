"""Asking: models are asked within a run's budget, and answers are saved before they are read."""

from collections.abc import Sequence
from functools import partial

from app.domain.budget import booked
from app.domain.cohort import Cohort
from app.domain.operator import Completion, Draft, Prompt
from app.domain.run import Run
from app.engine.budget import lost, set_aside, tariff
from app.engine.context import Context
from app.entries import Turn
from app.ports import Unavailable


class Unaffordable(Exception):
    """A conversation may not go on: what it asks next could exceed the run's budget."""


class Overtaken(Exception):
    """Another worker was answered the same before, and goes on; what this one heard is booked.

    The lease had run out.  Who comes second leaves the step to who was first, or both would pay for
    every turn from here on; should that one end, the step is rung for as after any worker's end.
    """


def ask(
    ctx: Context,
    run: Run,
    cohort: Cohort,
    number: int,
    prompts: Sequence[Prompt],
    drafts: Sequence[Draft] = (),
) -> list[Completion]:
    """Asks the prompts of one turn of a cohort's conversation; returns an answer each, in order.

    Args:
      ctx: The world.
      run: Whose model is asked, and whose account pays.
      cohort: Whose conversation it is.
      number: The turn's.
      prompts: At least one.
      drafts: The parents that were drawn for it, one a member, to be saved with the answers.

    Raises:
      Unaffordable: A prompt is longer than was foreseen, and the budget has no room for it.
      Overtaken: Other answers to this turn are stored.
      Unavailable: The model cannot be reached; what may be billed all the same is booked.  Or the
        ledger cannot, twice in a row; what was answered is lost.
    """
    reason = set_aside(ctx, run, cohort, number, prompts)
    if reason:
        raise Unaffordable(reason)
    try:
        replies = ctx.model(run).complete(prompts)
    except Unavailable as error:
        lost(ctx, run, cohort, number, prompts, error.unanswered)
        raise
    account = booked(run.budget, tariff(run), prompts, replies)
    _save(ctx, Turn(cohort, number, account, prompts, replies, drafts))
    return replies


def _save(ctx: Context, turn: Turn) -> None:
    """Saves a turn; a connection that was cut is no reason to lose what was paid for."""
    run = turn.cohort.run
    try:
        overtaken = ctx.share(("save", run), [turn], partial(_saved, ctx))
    except Unavailable:
        overtaken = ctx.share(("save", run), [turn], partial(_saved, ctx))
    if any(one is turn for one in overtaken):
        raise Overtaken(f"turn {turn.number} of cohort {turn.cohort.id} was answered before")


def _saved(ctx: Context, turns: Sequence[Turn]) -> list[Turn]:
    with ctx.store.begin() as tx:
        overtaken = tx.save_completions(turns)
    return overtaken()
