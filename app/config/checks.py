"""What the settings of a run must agree on before it can begin."""

from app.config.layers import UsageError
from app.config.models import ModelSettings
from app.config.rules import refining_of
from app.config.settings import RunSettings
from app.domain.search.budget import Budget


def require_bounds(budget: Budget, llm: ModelSettings) -> None:
    """Makes sure that caps on tokens and money can be kept.

    Raises:
      UsageError: A model has no price, or may answer at any length, or one proposal may take more.
    """
    if budget.tokens is None and budget.cost_usd is None:
        return
    endless = sorted({one.name for one in llm.every if one.max_tokens is None})
    if endless:
        raise UsageError(
            f"{', '.join(endless)} may answer at as much length as it likes",
            where="budget.tokens" if budget.tokens is not None else "budget.cost_usd",
            remedy="Set llm.max_tokens, or leave the cap out.",
        )
    unpriced = sorted(
        {
            one.name
            for one in llm.every
            if one.usd_per_million_prompt_tokens is None
            or one.usd_per_million_completion_tokens is None
        }
    )
    if unpriced and budget.cost_usd is not None:
        raise UsageError(
            f"no price is known of {', '.join(unpriced)}",
            where="budget.cost_usd",
            remedy="Set llm.usd_per_million_prompt_tokens and llm.usd_per_million_completion_tokens"
            ", or those of the model or role; or cap budget.tokens instead.",
        )
    asks, each = 1 + llm.repair_turns, llm.price_ceiling.reservation(0)
    needs = {"tokens": asks * each.tokens, "cost_usd": asks * each.cost_usd}
    for name, least in needs.items():
        cap: float | None = {"tokens": budget.tokens, "cost_usd": budget.cost_usd}[name]
        if cap is not None and cap < least:
            raise UsageError(
                f"one proposal may take {least:g}, prompts not counted, so none could be asked for",
                where=f"budget.{name}",
                value=f"{cap:g}",
                remedy=f"Raise it, or lower llm.max_tokens (the longest answer is "
                f"{llm.price_ceiling.max_tokens}) or llm.repair_turns ({llm.repair_turns}).",
            )


def require_refining(settings: RunSettings) -> None:
    """Makes sure that what the refiner waits for can be seen.

    Raises:
      UsageError: Its parents are to be among more programs than are shown.
    """
    rules, shown = refining_of(settings.llm), settings.search.top_programs
    if rules.share and rules.top > shown:
        raise UsageError(
            f"the refiner's parents are looked for among the {shown} fittest, as many as are shown",
            where="llm.refiner_top",
            value=str(rules.top),
            remedy="Lower it, or raise search.top_programs.",
        )
