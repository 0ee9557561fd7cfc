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
        ctx.share(("save", run), [turn], partial(_saved, ctx))
    except Unavailable:
        ctx.share(("save", run), [turn], partial(_saved, ctx))


def _saved(ctx: Context, turns: Sequence[Turn]) -> None:
    with ctx.store.begin() as tx:
        tx.save_completions(turns)
