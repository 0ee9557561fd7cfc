"""Budgets: what a run may still plan, with everything in flight counted as if it were spent.

The price of a completion is known only once it has come, so a share is reserved for each one
beforehand: `PriceCeiling.reservation`.  The completion's part of the share is an upper bound,
because a request limits the length of its answer.  The prompt's part is learnt from the longest
prompt that the run has paid for, with room to grow; until there is one, conversations with a model
go one at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.operator import Completion, Prompt
from app.domain.prompting.tokens import estimated

PROMPT_GROWTH = 2.0
"""Prompts grow with programs, attempts and elites while earlier ones are in flight; in the first
minute of a run they were seen to grow by 1.9 between two plans."""


PROMPT_MARGIN = 1.25
"""Times the estimate of a prompt's tokens, which was seen to be as little as 0.92 of them."""
FRAME_TOKENS = 64
"""What an endpoint's own form adds to a prompt, at most."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps; None means none.

    Attributes:
      proposals: Children the run may ask for; the seeds are not counted.
      wall_seconds: From the start of the run, pauses included.
      tokens: Prompt and completion tokens together.
      cost_usd: Price of the completions; those read from an earlier run cost nothing.
    """

    proposals: int
    wall_seconds: float | None = None
    tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class PriceCeiling:
    """The most that one completion of a run may take.

    Attributes:
      max_tokens: Longest completion of any of the run's models, reasoning included.
      prompt_usd, completion_usd: The dearest of their prices, of a million tokens.
    """

    max_tokens: int = 0
    prompt_usd: float = 0.0
    completion_usd: float = 0.0

    def reservation(self, longest_prompt_tokens: int) -> "Price":
        """Returns what is set aside for one completion."""
        prompt = math.ceil(longest_prompt_tokens * PROMPT_GROWTH)
        usd = (prompt * self.prompt_usd + self.max_tokens * self.completion_usd) / 1e6
        return Price(prompt + self.max_tokens, usd)


@dataclass(frozen=True, slots=True)
class Price:
    """What completions take."""

    tokens: int = 0
    cost_usd: float = 0.0


NOTHING = Price()


@dataclass(frozen=True, slots=True)
class Charge:
    """What a turn of a conversation adds to its run's account.

    Attributes:
      longest_prompt_tokens: Of the prompts, those of reused completions included.
    """

    tokens: int = 0
    cost_usd: float = 0.0
    longest_prompt_tokens: int = 0


def booked(
    budget: Budget,
    price_ceiling: PriceCeiling,
    prompts: Sequence[Prompt],
    completions: Sequence[Completion],
) -> Charge:
    """Returns what completions add to a run's account.

    A run with a cap on tokens or money books a completion that its endpoint did not count at one
    token a byte, which is more than any tokenizer makes of it, and a request that was never
    answered at the longest answer it allowed: a cap may end a run early, not late.
    """
    tokens, usd, longest = 0, 0.0, 0
    for prompt, one in zip(prompts, completions, strict=True):
        if one.unanswered and capped(budget):
            lost = unanswered(price_ceiling, prompt, one.unanswered)
            tokens, usd = tokens + lost.tokens, usd + lost.cost_usd
        asked, answered, cost = one.prompt_tokens, one.completion_tokens, one.cost_usd
        if not asked and capped(budget):
            asked = len(f"{prompt.system}{prompt.user}".encode(errors="replace"))
            answered = len(one.text.encode(errors="replace"))
            cost = (
                asked * price_ceiling.prompt_usd + answered * price_ceiling.completion_usd
            ) / 1e6
        longest = max(longest, asked)
        if not one.reused:
            tokens, usd = tokens + asked + answered, usd + (cost or 0.0)
    return Charge(tokens, usd, longest)


def longest_tokens(prompt: Prompt) -> int:
    """Returns how many tokens an endpoint may count for a prompt."""
    text = f"{prompt.system}{prompt.user}"
    bytes_and_frame = len(text.encode(errors="replace")) + FRAME_TOKENS
    return min(bytes_and_frame, math.ceil(estimated(text) * PROMPT_MARGIN) + FRAME_TOKENS)


def unanswered(price_ceiling: PriceCeiling, prompt: Prompt, times: int) -> "Price":
    """Returns what requests may cost that an endpoint took and never answered."""
    prompt_tokens = longest_tokens(prompt)
    usd = (
        prompt_tokens * price_ceiling.prompt_usd
        + price_ceiling.max_tokens * price_ceiling.completion_usd
    ) / 1e6
    return Price(times * (prompt_tokens + price_ceiling.max_tokens), times * usd)


def surprising(prompts: Sequence[Prompt], longest_prompt_tokens: int) -> int:
    """Returns the longest prompt's tokens where they are more than is set aside; 0 otherwise.

    Args:
      prompts: About to be asked.
      longest_prompt_tokens: Of the prompts before; what is set aside follows from it.
    """
    room = math.ceil(longest_prompt_tokens * PROMPT_GROWTH)
    longest = max((longest_tokens(one) for one in prompts), default=0)
    return longest if longest > room else 0


def fits(budget: Budget, standing: "Usage", price_ceiling: PriceCeiling) -> bool:
    """Returns whether what is in flight is within the caps, each at what is set aside for it."""
    each = price_ceiling.reservation(standing.longest_prompt_tokens)
    return not _exceeded(
        budget, standing, standing.proposals, each, standing.waiting, asks=1, timed=False
    )


def capped(budget: Budget) -> bool:
    """Returns whether a budget caps what completions take."""
    return budget.tokens is not None or budget.cost_usd is not None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has spent, and what it has promised.

    Attributes:
      proposals: Planned so far.
      tokens, cost_usd: Of the completions that are there.
      elapsed_seconds: Since the run was created.
      waiting: Completions that proposals in flight may still ask for.
      longest_prompt_tokens: Of the prompts paid for; 0 before the first.
      lasts_seconds: Mean from a proposal's planning to its settling; 0.0 while unknown.
    """

    proposals: int
    tokens: int = 0
    cost_usd: float = 0.0
    elapsed_seconds: float = 0.0
    waiting: int = 0
    longest_prompt_tokens: int = 0
    lasts_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """A cohort that could be planned.

    Attributes:
      completions: The most its operator may ask for.
    """

    proposals: int
    completions: int = 0


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many of the wanted cohorts fit, from the first on, and why not all; "" where all do."""

    cohorts: int
    reason: str = ""


def room(
    budget: Budget, standing: Usage, price_ceiling: PriceCeiling, wanted: Sequence[Demand]
) -> Allowance:
    """Returns how many of the cohorts fit into a budget beside what is spent and promised."""
    each = price_ceiling.reservation(standing.longest_prompt_tokens)
    probing = capped(budget) and not standing.longest_prompt_tokens
    proposals, completions = standing.proposals, standing.waiting
    for n, one in enumerate(wanted):
        if probing and one.completions and completions:
            return Allowance(n, "the first completion says how long prompts are")
        proposals, completions = proposals + one.proposals, completions + one.completions
        reason = _exceeded(budget, standing, proposals, each, completions, asks=one.completions)
        if reason:
            return Allowance(n, reason)
    return Allowance(len(wanted))


def spent(budget: Budget, standing: Usage) -> str:
    """Returns which cap is reached, whatever is wanted; "" where none is."""
    if standing.proposals >= budget.proposals:
        return f"budget of {budget.proposals} proposals spent"
    if overtime(budget, standing.elapsed_seconds):
        return f"budget of {budget.wall_seconds:g} s spent"
    if budget.tokens is not None and standing.tokens >= budget.tokens:
        return f"budget of {budget.tokens} tokens spent"
    if budget.cost_usd is not None and standing.cost_usd >= budget.cost_usd:
        return f"budget of ${budget.cost_usd:g} spent"
    return ""


def overtime(budget: Budget, elapsed_seconds: float) -> bool:
    """Returns whether a run's time is over, so that what is in flight is cut."""
    return budget.wall_seconds is not None and elapsed_seconds >= budget.wall_seconds


def _exceeded(
    budget: Budget,
    standing: Usage,
    proposals: int,
    each: Price,
    completions: int,
    *,
    asks: int,
    timed: bool = True,
) -> str:
    """Returns which cap so many proposals and completions would exceed; "" where none."""
    if proposals > budget.proposals:
        return f"budget of {budget.proposals} proposals spent"
    if timed and budget.wall_seconds is not None:
        left = budget.wall_seconds - standing.elapsed_seconds
        if left <= 0:
            return f"budget of {budget.wall_seconds:g} s spent"
        if standing.lasts_seconds > left:
            return (
                f"budget of {budget.wall_seconds:g} s spent: {left:.1f} s are left, and a proposal "
                f"takes {standing.lasts_seconds:.1f} s"
            )
    if not asks:
        return ""
    if budget.tokens is not None and standing.tokens + completions * each.tokens > budget.tokens:
        return (
            f"budget of {budget.tokens} tokens spent: {standing.tokens} are used, and what is "
            f"asked next may take {asks * each.tokens} in {asks} completion(s)"
        )
    usd = standing.cost_usd + completions * each.cost_usd
    if budget.cost_usd is not None and usd > budget.cost_usd:
        return (
            f"budget of ${budget.cost_usd:g} spent: ${standing.cost_usd:.6g} are used, and what is "
            f"asked next may cost ${asks * each.cost_usd:.6g} in {asks} completion(s)"
        )
    return ""
