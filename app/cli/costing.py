"""What a run cost, in lines for people."""

from app.cli.display import duration
from app.entries import Account, Shift
from app.reports.costs import Costs


def cost_rows(found: Costs) -> dict[str, str]:
    """Returns a line a heading, of what there is to say."""
    rows = {"tokens": _tokens(found)}
    for one in found.models:
        rows[one.role] = "\n".join(
            _account(other) for other in found.models if other.role == one.role
        )
    if found.workers:
        rows["workers"] = ", ".join(_shift(one) for one in found.workers)
    rows["cost"] = _total(found)
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
    return (
        f"{found.prompt_tokens:,} of prompts{cached}, {found.completion_tokens:,} of answers{saved}"
    )


def _account(one: Account) -> str:
    hits = f", {one.reused} of them reused" if one.reused else ""
    tokens = one.prompt_tokens + one.completion_tokens
    price = dollars(one.cost_usd)
    if one.unpriced and one.cost_usd is not None:
        price += f", {one.unpriced} without a price"
    return f"{one.model}: {one.completions} completions{hits}, {tokens:,} tokens, {price}"


def _shift(one: Shift) -> str:
    price = dollars(one.cost_usd)
    if one.unpriced_seconds and one.cost_usd is not None:
        price += f", {duration(one.unpriced_seconds)} without a price"
    return f"{one.kind} {duration(one.seconds)} ({price})"


def _total(found: Costs) -> str:
    parts = f"models {dollars(found.models_usd)}, workers {dollars(found.workers_usd)}"
    each = found.per_admitted_usd
    per = f"; {dollars(each)} for each admitted program" if each is not None else ""
    return f"{dollars(found.cost_usd)} ({parts}){per}"
