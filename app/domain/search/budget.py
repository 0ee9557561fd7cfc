"""Budgets: what a run may still plan, with everything in flight counted as if it were spent.

The price of a completion is known only after the request, so a reservation is made for each
completion beforehand: `PriceCeiling.reservation`.  The reservation for the reply is an upper bound,
because a request limits the length of its reply.  The reservation for the prompt is a multiple of
the longest prompt that the run has paid for; until there is one, conversations with a model run one
at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.operator import Completion, Prompt, Role
from app.domain.prompting.tokens import estimated
from app.domain.setting import LARGEST_INTEGER, MOST, bounded

PROMPT_GROWTH = 2.0
"""Most growth of prompts between two plans: they grow with programs, attempts and elites.  In the
first minute of a run, a growth of 1.9 was measured."""

PROMPT_MARGIN = 1.25
"""Factor of the estimate of a prompt's tokens; estimates as low as 0.92 were measured."""
FRAME_TOKENS = 64
"""Most tokens that an endpoint's chat format adds to a prompt."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps of a run, the section `budget` of its settings; None means no cap.

    Work in flight counts.  A completion that is reused from an earlier run costs nothing.
    """

    proposals: int = bounded(100, ge=1, le=MOST)
    """Children the run may propose, without seeds."""
    wall_seconds: float | None = bounded(None, gt=0)
    """Seconds the run may take, pauses included."""
    tokens: int | None = bounded(None, ge=1, le=LARGEST_INTEGER)
    """Tokens the run may use, of prompts and completions."""
    cost_usd: float | None = bounded(None, gt=0)
    """US dollars the run's completions may cost."""


@dataclass(frozen=True, slots=True)
class PriceCeiling:
    """The highest price of one completion of a run.

    Attributes:
      max_tokens: Longest completion of any of the run's models, reasoning included.
      prompt_usd, completion_usd: Highest price of these models, for a million tokens.
    """

    max_tokens: int = 0
    prompt_usd: float = 0.0
    completion_usd: float = 0.0

    def reservation(self, longest_prompt_tokens: int) -> "Price":
        """Returns the reservation for one completion."""
        prompt = math.ceil(longest_prompt_tokens * PROMPT_GROWTH)
        return Price(prompt + self.max_tokens, self.cost_usd(prompt, self.max_tokens))

    def of_tokens(self, tokens: int) -> "Price":
        """Returns the highest price of so many tokens, of prompts and replies together."""
        return Price(tokens, tokens * max(self.prompt_usd, self.completion_usd) / 1e6)

    def cost_usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Returns the highest cost of so many tokens."""
        return (prompt_tokens * self.prompt_usd + completion_tokens * self.completion_usd) / 1e6


@dataclass(frozen=True, slots=True)
class Price:
    """Tokens and cost of completions."""

    tokens: int = 0
    cost_usd: float = 0.0

    def with_(self, other: "Price") -> "Price":
        """Returns both together."""
        return Price(self.tokens + other.tokens, self.cost_usd + other.cost_usd)


NOTHING = Price()


@dataclass(frozen=True, slots=True)
class Charge:
    """Tokens and cost that a turn of a conversation adds to the usage of its run.

    Attributes:
      longest_prompt_tokens: Of the prompts, also where the completion was reused.
    """

    tokens: int = 0
    cost_usd: float = 0.0
    longest_prompt_tokens: int = 0


def charge(
    budget: Budget,
    price_ceiling: PriceCeiling,
    prompts: Sequence[Prompt],
    completions: Sequence[Completion],
) -> Charge:
    """Returns the charge of a turn's completions.

    If tokens or cost are capped, a completion without the endpoint's count is charged one token for
    each byte, which exceeds the count of any tokenizer, and a request without a reply is charged
    the longest reply it allowed: a cap may end a run early, but not late.  The tokens of an agent
    are those of all its requests, and say nothing about the length of prompts.
    """
    tokens, usd, longest = 0, 0.0, 0
    for prompt, completion in zip(prompts, completions, strict=True):
        if completion.unanswered and capped(budget):
            lost = unanswered_price(price_ceiling, prompt, completion.unanswered)
            tokens, usd = tokens + lost.tokens, usd + lost.cost_usd
        prompt_tokens, reply_tokens = completion.prompt_tokens, completion.completion_tokens
        cost = completion.cost_usd
        of_agent = prompt.role is Role.AGENT
        if not prompt_tokens and not of_agent and capped(budget):
            prompt_tokens = len(f"{prompt.system}{prompt.user}".encode(errors="replace"))
            reply_tokens = len(completion.text.encode(errors="replace"))
            cost = price_ceiling.cost_usd(prompt_tokens, reply_tokens)
        longest = max(longest, 0 if of_agent else prompt_tokens)
        if not completion.reused:
            tokens, usd = tokens + prompt_tokens + reply_tokens, usd + (cost or 0.0)
    return Charge(tokens, usd, longest)


def most_tokens(prompt: Prompt) -> int:
    """Returns an upper bound of the tokens that an endpoint counts for a prompt."""
    text = f"{prompt.system}{prompt.user}"
    bytes_and_frame = len(text.encode(errors="replace")) + FRAME_TOKENS
    return min(bytes_and_frame, math.ceil(estimated(text) * PROMPT_MARGIN) + FRAME_TOKENS)


def unanswered_price(price_ceiling: PriceCeiling, prompt: Prompt, requests: int) -> Price:
    """Returns the highest price of requests that an endpoint accepted and did not answer."""
    prompt_tokens, reply_tokens = most_tokens(prompt), price_ceiling.max_tokens
    usd = price_ceiling.cost_usd(prompt_tokens, reply_tokens)
    return Price(requests * (prompt_tokens + reply_tokens), requests * usd)


def unreserved_tokens(prompts: Sequence[Prompt], longest_prompt_tokens: int) -> int:
    """Returns the tokens of the longest prompt if they exceed the reservation, else 0.

    Args:
      prompts: The prompts of the next request; tasks of agents have a reservation of their own.
      longest_prompt_tokens: Of the prompts so far; the reservation follows from it.
    """
    reserved = math.ceil(longest_prompt_tokens * PROMPT_GROWTH)
    asked = (prompt for prompt in prompts if prompt.role is not Role.AGENT)
    longest = max(map(most_tokens, asked), default=0)
    return longest if longest > reserved else 0


def fits(budget: Budget, usage: "Usage", price_ceiling: PriceCeiling) -> bool:
    """Returns whether the reservations of everything in flight are within the caps."""
    each = price_ceiling.reservation(usage.longest_prompt_tokens)
    return not _exceeded(
        budget, usage, usage.proposals, each, usage.waiting, usage.reserved, asks=1, timed=False
    )


def capped(budget: Budget) -> bool:
    """Returns whether a budget caps tokens or cost."""
    return budget.tokens is not None or budget.cost_usd is not None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has spent and reserved.

    Attributes:
      proposals: Planned so far.
      tokens, cost_usd: Of the completions so far.
      elapsed_seconds: Since the run was created.
      waiting: Completions that proposals in flight may still request.
      longest_prompt_tokens: Of the prompts paid for; 0 before the first.
      lasts_seconds: Mean time from planning a proposal to settling it; 0.0 while unknown.
      reserved: What runs inside that go on, and agents, may still spend.
    """

    proposals: int
    tokens: int = 0
    cost_usd: float = 0.0
    elapsed_seconds: float = 0.0
    waiting: int = 0
    longest_prompt_tokens: int = 0
    lasts_seconds: float = 0.0
    reserved: Price = NOTHING


@dataclass(frozen=True, slots=True)
class Demand:
    """A cohort that could be planned.

    Attributes:
      completions: Most completions that its operator may request.
      reserved: What runs inside it, and its agents, may spend.
    """

    proposals: int
    completions: int = 0
    reserved: Price = NOTHING


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many cohorts of a demand fit, from the first on, and why not all; "" where all do."""

    cohorts: int
    reason: str = ""


def allowance(
    budget: Budget, usage: Usage, price_ceiling: PriceCeiling, demands: Sequence[Demand]
) -> Allowance:
    """Returns how many of the cohorts fit into a budget beside what is spent and reserved."""
    each = price_ceiling.reservation(usage.longest_prompt_tokens)
    probing = capped(budget) and not usage.longest_prompt_tokens
    proposals, completions, reserved = usage.proposals, usage.waiting, usage.reserved
    for n, demand in enumerate(demands):
        if probing and demand.completions and completions:
            return Allowance(n, "the first completion says how long prompts are")
        proposals += demand.proposals
        completions += demand.completions
        reserved = reserved.with_(demand.reserved)
        reason = _exceeded(
            budget, usage, proposals, each, completions, reserved, asks=demand.completions
        )
        if reason:
            return Allowance(n, reason)
    return Allowance(len(demands))


def spent(budget: Budget, usage: Usage) -> str:
    """Returns which cap the usage has reached; "" where none."""
    if usage.proposals >= budget.proposals:
        return f"budget of {budget.proposals} proposals spent"
    if overtime(budget, usage.elapsed_seconds):
        return f"budget of {budget.wall_seconds:g} s spent"
    if budget.tokens is not None and usage.tokens >= budget.tokens:
        return f"budget of {budget.tokens} tokens spent"
    if budget.cost_usd is not None and usage.cost_usd >= budget.cost_usd:
        return f"budget of ${budget.cost_usd:g} spent"
    return ""


def tokens_left(budget: Budget, usage: Usage, price_ceiling: PriceCeiling) -> int | None:
    """Returns the tokens that the caps of tokens and cost leave; None where neither caps them."""
    tokens = None if budget.tokens is None else max(0, budget.tokens - usage.tokens)
    usd = price_ceiling.of_tokens(1).cost_usd
    if budget.cost_usd is None or not usd:
        return tokens
    paid = int(min(max(0.0, budget.cost_usd - usage.cost_usd) / usd, LARGEST_INTEGER))
    return paid if tokens is None else min(tokens, paid)


def overtime(budget: Budget, elapsed_seconds: float) -> bool:
    """Returns whether a run's time is over, so that everything in flight is cut."""
    return budget.wall_seconds is not None and elapsed_seconds >= budget.wall_seconds


def _exceeded(
    budget: Budget,
    usage: Usage,
    proposals: int,
    each: Price,
    completions: int,
    reserved: Price,
    *,
    asks: int,
    timed: bool = True,
) -> str:
    """Returns which cap these proposals and completions would exceed; "" where none."""
    if proposals > budget.proposals:
        return f"budget of {budget.proposals} proposals spent"
    if timed and budget.wall_seconds is not None:
        left = budget.wall_seconds - usage.elapsed_seconds
        if left <= 0:
            return f"budget of {budget.wall_seconds:g} s spent"
        if usage.lasts_seconds > left:
            return (
                f"budget of {budget.wall_seconds:g} s spent: {left:.1f} s are left, and a proposal "
                f"takes {usage.lasts_seconds:.1f} s"
            )
    if not asks and reserved == usage.reserved:
        return ""
    tokens = usage.tokens + completions * each.tokens + reserved.tokens
    if budget.tokens is not None and tokens > budget.tokens:
        return (
            f"budget of {budget.tokens} tokens spent: {usage.tokens} are used, and what is "
            f"asked next may take {asks * each.tokens or reserved.tokens} in "
            f"{f'{asks} completion(s)' if asks else 'runs inside and agents'}"
        )
    usd = usage.cost_usd + completions * each.cost_usd + reserved.cost_usd
    if budget.cost_usd is not None and usd > budget.cost_usd:
        return (
            f"budget of ${budget.cost_usd:g} spent: ${usage.cost_usd:.6g} are used, and what is "
            f"asked next may cost ${asks * each.cost_usd or reserved.cost_usd:.6g} in "
            f"{f'{asks} completion(s)' if asks else 'runs inside and agents'}"
        )
    return ""
