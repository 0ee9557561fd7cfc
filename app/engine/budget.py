"""Budget: what the ledger says of a run's account, and which plans still fit."""

from collections.abc import Mapping, Sequence

from app.domain.budget import Room, Standing, Tariff, Wanted, capped, room
from app.domain.run import Run
from app.engine.context import Context
from app.entries import Plan
from app.ledger import Transaction
from app.model_settings import ModelSettings


def affordable(ctx: Context, tx: Transaction, run: Run, plans: Sequence[Plan]) -> Room:
    """Returns how many of the plans, from the first on, the run's budget still has room for.

    A run that caps proposals only costs no statement here.
    """
    wanted = [
        Wanted(len(plan.ordinals), len(plan.ordinals) * _completions(ctx, run, plan.operator))
        for plan in plans
    ]
    return room(run.budget, _standing(ctx, tx, run), tariff(run), wanted)


def tariff(run: Run) -> Tariff:
    """Returns the most that one completion of the run may take, by its settings."""
    return ModelSettings(**run.settings["llm"]).tariff if capped(run.budget) else Tariff()


def account(run: Run) -> Standing:
    """Returns what a run has spent, with nothing in flight."""
    return Standing(
        run.proposals,
        run.tokens,
        run.cost_usd,
        run.elapsed_seconds,
        longest_prompt_tokens=run.longest_prompt_tokens,
    )


def _standing(ctx: Context, tx: Transaction, run: Run) -> Standing:
    waiting: Mapping[str, int] = {}
    if capped(run.budget):
        waiting = tx.waiting(run.id)
        run = tx.run(run.id)  # after `waiting`: who waits no longer has been booked before
    known = account(run)
    timed = run.budget.wall_seconds is not None
    return Standing(
        known.proposals,
        known.tokens,
        known.cost_usd,
        known.elapsed_seconds,
        sum(n * _completions(ctx, run, operator) for operator, n in waiting.items()),
        known.longest_prompt_tokens,
        tx.lasts_seconds(run.id) if timed else 0.0,
    )


def _completions(ctx: Context, run: Run, operator: str) -> int:
    """Returns the most completions an operator may ask for, for one draft."""
    known = ctx.operators[operator]
    turns = run.settings["llm"].get("repair_turns", 0)
    return known.most_completions(turns) if known.asks_model else 0
