"""Budget: a run's account in the ledger, and which plans still fit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.domain.operator import Prompt
from app.domain.run import Run
from app.domain.search.budget import (
    NOTHING,
    PROMPT_GROWTH,
    Allowance,
    Charge,
    Demand,
    Price,
    PriceCeiling,
    Usage,
    allowance,
    capped,
    fits,
    unanswered_price,
    unreserved_tokens,
)
from app.domain.search.nested import most_spent
from app.engine.context import Context
from app.ports.cohorts import Plan
from app.ports.completions import Turn
from app.ports.ledger import Transaction


def affordable(ctx: Context, tx: Transaction, run: Run, plans: Sequence[Plan]) -> Allowance:
    """Returns how many of the plans, from the first on, the run's budget still has room for.

    A run that caps proposals only costs no statement here.
    """
    judges = _judges(run)
    wanted = [
        Demand(
            plan.proposals,
            len(plan.ordinals) * _completions(ctx, run, plan.operator, judges),
            most_spent(run.budget, sum(plan.reserved)).with_(
                _of_agents(ctx, run, plan.operator, len(plan.ordinals))
            ),
        )
        for plan in plans
    ]
    return allowance(run.budget, _usage(ctx, tx, run), price_ceiling(run), wanted)


def price_ceiling(run: Run) -> PriceCeiling:
    """Returns the most that one completion of the run may take, by its settings."""
    return run.rules.asking.price_ceiling if capped(run.budget) else PriceCeiling()


def set_aside(ctx: Context, run: Run, turn: Turn) -> str:
    """Sets more aside for a turn whose prompts are longer than was foreseen, before it is asked.

    Returns:
      Why the budget has no room for them; "" where it has.
    """
    if not capped(run.budget) or not unreserved_tokens(turn.prompts, run.longest_prompt_tokens):
        return ""
    with ctx.store.begin() as tx:
        tokens = unreserved_tokens(turn.prompts, tx.runs.get(run.id).longest_prompt_tokens)
        if tokens:
            raised = Charge(longest_prompt_tokens=math.ceil(tokens / PROMPT_GROWTH))
            tx.completions.save([replace(turn, booked=raised, prompts=())])
    if not tokens:
        return ""
    with ctx.store.begin() as tx:
        usage = _usage(ctx, tx, run)
    if fits(run.budget, usage, price_ceiling(run)):
        return ""
    return f"the budget has no room for a prompt of {tokens} tokens beside what is in flight"


def lost(run: Run, prompts: Sequence[Prompt], n: int) -> Price:
    """Returns what `n` requests may take that were never answered, at the dearest prompt's.

    Nothing where no cap asks for it.
    """
    if not n or not capped(run.budget):
        return NOTHING
    ceiling = price_ceiling(run)
    prices = (unanswered_price(ceiling, prompt, 1) for prompt in prompts)
    dearest = max(prices, key=lambda price: (price.cost_usd, price.tokens), default=NOTHING)
    return Price(n * dearest.tokens, n * dearest.cost_usd)


def account(run: Run) -> Usage:
    """Returns what a run has spent, with nothing in flight."""
    return Usage(
        run.proposals,
        run.tokens,
        run.cost_usd,
        run.elapsed_seconds,
        longest_prompt_tokens=run.longest_prompt_tokens,
    )


def _usage(ctx: Context, tx: Transaction, run: Run) -> Usage:
    waiting: Mapping[str, int] = {}
    judges, judged = _judges(run), 0
    if capped(run.budget):
        judged = judges * tx.proposals.backlog(run.id).evaluating if judges else 0
        waiting = tx.proposals.waiting(run.id)
        # The run is read after `waiting`, so that each proposal is counted.
        run = tx.runs.get(run.id)
    timed = run.budget.wall_seconds is not None
    reserved = _reserved(tx, run) if run.rules.nested else NOTHING
    for operator, n in waiting.items():
        reserved = reserved.with_(_of_agents(ctx, run, operator, n))
    return replace(
        account(run),
        waiting=judged + sum(n * _completions(ctx, run, op, judges) for op, n in waiting.items()),
        lasts_seconds=tx.proposals.mean_seconds(run.id) if timed else 0.0,
        reserved=reserved,
    )


def _of_agents(ctx: Context, run: Run, operator: str, n: int) -> Price:
    """Returns what the agents of `n` proposals of an operator may spend.

    Nothing where no cap asks for it, or where the operator has no agents.
    """
    if not capped(run.budget) or not ctx.operators[operator].agent:
        return NOTHING
    return price_ceiling(run).of_tokens(n * run.rules.asking.agent_tokens)


def _reserved(tx: Transaction, run: Run) -> Price:
    """Returns what runs inside a run that go on, or are to begin, may still spend on models."""
    tokens, cost_usd = 0, 0.0
    for inside in tx.runs.inside(run.id, reserving=True):
        most = most_spent(run.budget, inside.reserved)
        spent = Price(inside.run.tokens, inside.run.cost_usd) if inside.run else NOTHING
        if inside.run is None or not inside.run.state.final:
            tokens += max(0, most.tokens - spent.tokens)
            cost_usd += max(0.0, most.cost_usd - spent.cost_usd)
    return Price(tokens, cost_usd)


def _judges(run: Run) -> int:
    """Returns how many judges are asked of every child; 0 where nothing caps what they take."""
    judges = run.rules.asking.judges if capped(run.budget) else None
    return len(judges.panel) if judges else 0


def _completions(ctx: Context, run: Run, operator: str, judges: int) -> int:
    """Returns the most completions a draft of an operator may ask for, those of judges included."""
    chosen = ctx.operators[operator]
    rules = run.rules.asking
    most = chosen.most_completions(rules.repair_turns, rules.roles)
    return judges + (most if chosen.asks_model else 0)
