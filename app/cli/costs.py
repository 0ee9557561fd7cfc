"""`evoq costs`, and the costs of a run as text."""

from dataclasses import asdict

from app.cli.options import Debug, Json
from app.cli.output import Screen
from app.cli.tables import labelled_table
from app.client.target import find_target, open_ledger
from app.domain.search.model_mix import Written
from app.ports.completions import Account
from app.ports.history import Spent
from app.ports.workers import WorkerTime
from app.reports.costs import Costs
from app.reports.text import duration, usd

_LEAST_USD = 1e-9
"""Sums in different orders differ by less."""


def costs(as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001  read by `status_of`
    """Shows the costs of all runs together, and the workers' time without work.

    Examples:
      evoq costs
      evoq costs --json
    """
    screen, target = Screen(json=as_json), find_target()
    spent, busy, idle = Spent(0, 0, 0.0), list[WorkerTime](), list[WorkerTime]()
    if target.used:
        with open_ledger(target) as ledger, ledger.store.begin() as tx:
            spent, busy, idle = tx.history.spent(), tx.workers.busy(), tx.workers.idle()
    known = f"{usd(spent.cost_usd)} of what has a price"
    rows = {
        "models": f"{spent.tokens:,} tokens, {known}, in {spent.runs} runs",
        "workers": ", ".join(map(_worker_time, busy)) or "none have worked yet",
        "idle": ", ".join(map(_worker_time, idle)) or "none",
    }
    screen.out.print(labelled_table(rows.items()))
    workers = {"busy": [asdict(time) for time in busy], "idle": [asdict(time) for time in idle]}
    screen.answer({**asdict(spent), "workers": workers})


def cost_rows(costs: Costs) -> dict[str, str]:
    """Returns the costs of a run as text, by heading."""
    rows = {"tokens": _tokens(costs)}
    for role in dict.fromkeys(account.role for account in costs.models):
        accounts = [account for account in costs.models if account.role == role]
        written = costs.written.get(role, {})
        rows[role] = "\n".join(
            _account(account) + _gains(written.get(account.model)) for account in accounts
        )
    if costs.workers:
        rows["workers"] = ", ".join(map(_worker_time, costs.workers))
    rows["cost"] = total_cost(costs)
    return rows


def total_cost(costs: Costs) -> str:
    """Returns the total of all known prices, and the cost of each measured program."""
    parts = f"models {usd(costs.models_usd)}, workers {usd(costs.workers_usd)}"
    each = costs.per_admitted_usd
    per = f"; {usd(each)} for each measured program" if each is not None else ""
    return f"{usd(costs.cost_usd)} ({parts}){per}"


def _tokens(costs: Costs) -> str:
    if not costs.models:
        return "none: no model has answered"
    rate = costs.prefix_hit_rate
    cached = f" ({rate:.0%} of them read before by the endpoint)" if rate is not None else ""
    reused = sum(account.reused_tokens for account in costs.models)
    saved = f"; {reused:,} not spent again" if reused else ""
    booked = f"; {_uncounted(costs)}" if costs.uncounted_tokens else ""
    answers = f"{costs.completion_tokens:,} of answers"
    return f"{costs.prompt_tokens:,} of prompts{cached}, {answers}{booked}{saved}"


def _uncounted(costs: Costs) -> str:
    price = f" ({usd(costs.uncounted_usd)})" if costs.uncounted_usd >= _LEAST_USD else ""
    what = "answered twice, not answered or not counted"
    return f"{costs.uncounted_tokens:,} more booked{price} for what was {what}"


def _account(account: Account) -> str:
    hits = f", {account.reused} of them reused" if account.reused else ""
    tokens = account.prompt_tokens + account.completion_tokens
    price = usd(account.cost_usd)
    if account.unpriced and account.cost_usd is not None:
        price += f", {account.unpriced} without a price"
    return f"{account.model}: {account.completions} completions{hits}, {tokens:,} tokens, {price}"


def _gains(written: Written | None) -> str:
    if written is None:
        return ""
    return f", {written.gains} of its last {written.children} children better than their parent"


def _worker_time(time: WorkerTime) -> str:
    price = usd(time.cost_usd)
    if time.unpriced_seconds and time.cost_usd is not None:
        price += f", {duration(time.unpriced_seconds)} without a price"
    return f"{time.kind} {duration(time.seconds)} ({price})"
