"""What a run cost, in lines for people."""

from dataclasses import asdict

from rich.table import Table

from app.cli.display import duration
from app.cli.screen import Screen
from app.cli.target import opened, place
from app.ports.records import Account, Spent, WorkerTime
from app.reports.costs import Costs

_LEAST_USD = 1e-9
"""Less is what sums in another order differ by."""


def costs(screen: Screen) -> None:
    """Shows what all runs cost, and the workers' time that none of them had."""
    at = place()
    spent, busy, idle = Spent(0, 0, 0.0), list[WorkerTime](), list[WorkerTime]()
    if at.deployed or at.home.exists():
        with opened(at) as ledger, ledger.store.begin() as tx:
            spent, busy, idle = tx.history.spent(), tx.worker_times.busy(), tx.worker_times.idle()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    told = f"{spent.tokens:,} tokens, {dollars(spent.cost_usd)} of what has a price"
    table.add_row("models", f"{told}, in {spent.runs} runs")
    table.add_row("workers", ", ".join(map(_shift, busy)) or "none have worked yet")
    table.add_row("idle", ", ".join(map(_shift, idle)) or "none")
    screen.out.print(table)
    document = {"busy": [asdict(one) for one in busy], "idle": [asdict(one) for one in idle]}
    screen.answer({**asdict(spent), "workers": document})


def cost_rows(found: Costs) -> dict[str, str]:
    """Returns a line a heading, of what there is to say."""
    rows = {"tokens": _tokens(found)}
    for one in found.models:
        rows[one.role] = "\n".join(
            _account(other) for other in found.models if other.role == one.role
        )
    if found.workers:
        rows["workers"] = ", ".join(_shift(one) for one in found.workers)
    rows["cost"] = total(found)
    return rows


def dollars(amount: float | None) -> str:
    """Returns an amount with its first significant digits; "no price" where it is not known."""
    if amount is None:
        return "no price"
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.3g}"


def _tokens(found: Costs) -> str:
    if not found.models:
        return "none: no model was asked"
    rate = found.prefix_hit_rate
    cached = f" ({rate:.0%} of them read before by the endpoint)" if rate is not None else ""
    reused = sum(one.reused_tokens for one in found.models)
    saved = f"; {reused:,} not spent again" if reused else ""
    booked = f"; {_uncounted(found)}" if found.uncounted_tokens else ""
    answers = f"{found.completion_tokens:,} of answers"
    return f"{found.prompt_tokens:,} of prompts{cached}, {answers}{booked}{saved}"


def _uncounted(found: Costs) -> str:
    usd = found.uncounted_usd
    price = f" ({dollars(usd)})" if usd >= _LEAST_USD else ""
    what = "answered twice, not answered or not counted"
    return f"{found.uncounted_tokens:,} more booked{price} for what was {what}"


def _account(one: Account) -> str:
    hits = f", {one.reused} of them reused" if one.reused else ""
    tokens = one.prompt_tokens + one.completion_tokens
    price = dollars(one.cost_usd)
    if one.unpriced and one.cost_usd is not None:
        price += f", {one.unpriced} without a price"
    return f"{one.model}: {one.completions} completions{hits}, {tokens:,} tokens, {price}"


def _shift(one: WorkerTime) -> str:
    price = dollars(one.cost_usd)
    if one.unpriced_seconds and one.cost_usd is not None:
        price += f", {duration(one.unpriced_seconds)} without a price"
    return f"{one.kind} {duration(one.seconds)} ({price})"


def total(found: Costs) -> str:
    """Returns the sum of all that has a price, and of each admitted program."""
    parts = f"models {dollars(found.models_usd)}, workers {dollars(found.workers_usd)}"
    each = found.per_admitted_usd
    per = f"; {dollars(each)} for each admitted program" if each is not None else ""
    return f"{dollars(found.cost_usd)} ({parts}){per}"
