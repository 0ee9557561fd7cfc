"""Budgets are hard: whatever completions take, within what was set aside, no cap is exceeded."""

import math
from dataclasses import replace
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.domain.operator import Completion, Prompt, Role
from app.domain.search.budget import (
    FRAME_TOKENS,
    PROMPT_GROWTH,
    Allowance,
    Budget,
    Charge,
    Demand,
    Price,
    PriceCeiling,
    Usage,
    allowance,
    charge,
    fits,
    most_tokens,
    spent,
    tokens_left,
    unreserved_tokens,
)

CEILING = PriceCeiling(max_tokens=100, prompt_usd=1.0, completion_usd=10.0)


def some(n: int, completions: int = 1) -> list[Demand]:
    return [Demand(1, completions)] * n


def test_everything_fits_if_only_proposals_are_capped() -> None:
    assert allowance(Budget(10), Usage(4), PriceCeiling(), some(6, 0)) == Allowance(6)
    assert allowance(Budget(10), Usage(4), PriceCeiling(), some(8, 0)) == Allowance(
        6, "budget of 10 proposals spent"
    )


def test_proposals_in_flight_count_as_spent() -> None:
    usage = Usage(0, tokens=500, waiting=3, longest_prompt_tokens=50)  # 200 a completion
    found = allowance(Budget(100, tokens=1500), usage, CEILING, some(9))
    assert found.cohorts == 2
    assert found.reason == (
        "budget of 1500 tokens spent: 500 are used, and what is asked next may take 200 in 1 "
        "completion(s)"
    )


def test_the_reservation_has_the_highest_price_of_a_full_completion() -> None:
    each = CEILING.reservation(50)
    assert (each.tokens, each.cost_usd) == (200, (100 * 1.0 + 100 * 10.0) / 1e6)
    found = allowance(
        Budget(100, cost_usd=0.005), Usage(0, longest_prompt_tokens=50), CEILING, some(9)
    )
    assert found.cohorts == 4
    assert found.reason.startswith("budget of $0.005 spent: $0 are used")


def test_conversations_run_one_at_a_time_until_a_prompt_has_been_measured() -> None:
    capped = Budget(100, tokens=10_000)
    assert allowance(capped, Usage(0), CEILING, some(9)).cohorts == 1
    assert allowance(capped, Usage(1, waiting=1), CEILING, some(9)).cohorts == 0
    assert allowance(capped, Usage(1, longest_prompt_tokens=50), CEILING, some(9)).cohorts == 9
    assert allowance(Budget(100), Usage(0), CEILING, some(9)).cohorts == 9


def test_operators_without_a_model_need_no_tokens() -> None:
    mix = [Demand(1, 0), Demand(1, 0), Demand(1, 1), Demand(1, 0)]
    usage = Usage(0, tokens=990, longest_prompt_tokens=50)
    assert allowance(Budget(100, tokens=1000), usage, CEILING, mix).cohorts == 2


def test_no_proposal_is_planned_that_would_not_settle_in_time() -> None:
    late = Usage(0, elapsed_seconds=55.0, lasts_seconds=6.0)
    found = allowance(Budget(100, wall_seconds=60.0), late, PriceCeiling(), some(3, 0))
    assert found == Allowance(0, "budget of 60 s spent: 5.0 s are left, and a proposal takes 6.0 s")
    early = Usage(0, elapsed_seconds=50.0, lasts_seconds=6.0)
    assert allowance(Budget(100, wall_seconds=60.0), early, PriceCeiling(), some(3, 0)).cohorts == 3


def test_a_cap_that_is_reached_is_named() -> None:
    assert spent(Budget(10), Usage(9)) == ""
    assert spent(Budget(10), Usage(10)) == "budget of 10 proposals spent"
    assert spent(Budget(10, tokens=5), Usage(1, tokens=5)) == "budget of 5 tokens spent"
    assert spent(Budget(10, cost_usd=0.5), Usage(1, cost_usd=0.5)) == "budget of $0.5 spent"
    assert spent(Budget(10, 2.0), Usage(1, elapsed_seconds=2.0)) == "budget of 2 s spent"


def test_an_uncounted_completion_of_a_capped_run_is_charged_a_token_a_byte() -> None:
    prompts, replies = [Prompt("sys", "user", 0)], [Completion("four")]
    assert charge(Budget(10), CEILING, prompts, replies) == Charge()
    assert charge(Budget(10, tokens=99), CEILING, prompts, replies) == Charge(
        11, (7 * 1.0 + 4 * 10.0) / 1e6, 7
    )


def test_an_unanswered_request_is_charged_the_longest_reply() -> None:
    prompt = Prompt("", "a b c d")
    one = Completion("x", prompt_tokens=4, completion_tokens=1, cost_usd=0.0, unanswered=2)
    each = most_tokens(prompt) + CEILING.max_tokens

    assert charge(Budget(9, tokens=1), CEILING, [prompt], [one]).tokens == 5 + 2 * each
    assert charge(Budget(9), CEILING, [prompt], [one]).tokens == 5, "nothing is capped"


def test_a_prompt_longer_than_its_reservation_is_detected_before_the_request() -> None:
    prompt = Prompt("", "word " * 1000)
    tokens = most_tokens(prompt)

    assert 1000 + FRAME_TOKENS <= tokens <= 2 * 1000 + FRAME_TOKENS
    assert unreserved_tokens([Prompt("", "hi"), prompt], 100) == tokens
    assert unreserved_tokens([prompt], math.ceil(tokens / PROMPT_GROWTH)) == 0
    assert most_tokens(Prompt("", "§" * 10)) <= 20 + FRAME_TOKENS, "a token a byte at most"


def test_proposals_in_flight_fit_if_all_reservations_are_within_the_cap() -> None:
    usage = Usage(5, tokens=500, waiting=3, longest_prompt_tokens=50)  # 200 a completion

    assert fits(Budget(5, tokens=1100), usage, CEILING)
    assert not fits(Budget(5, tokens=1099), usage, CEILING)
    assert fits(
        Budget(5, tokens=1100, wall_seconds=1.0), replace(usage, elapsed_seconds=9), CEILING
    )


def test_a_reused_completion_costs_nothing_and_shows_the_length_of_its_prompt() -> None:
    completion = Completion("x", prompt_tokens=70, completion_tokens=30, cost_usd=0.5)
    prompts = [Prompt("", "a"), Prompt("", "b")]
    found = charge(
        Budget(1),
        CEILING,
        prompts,
        [completion, replace(completion, prompt_tokens=90, reused=True)],
    )
    assert found == Charge(100, 0.5, 90)


@settings(max_examples=50)
@given(
    cap=st.integers(1, 50_000),
    dollars=st.floats(1e-4, 0.3),
    flight=st.integers(1, 40),
    most=st.integers(1, 3),
    first=st.integers(1, 60),
    rng=st.randoms(use_true_random=False),
)
def test_no_order_of_completions_exceeds_a_cap(
    cap: int, dollars: float, flight: int, most: int, first: int, rng: Random
) -> None:
    """Plans while anything fits and lets random cohorts end, each within what was set aside."""
    budget = Budget(200, tokens=cap, cost_usd=dollars)
    fits_once = most * (first + CEILING.max_tokens)
    assume(cap >= fits_once)
    assume(dollars >= fits_once * CEILING.completion_usd / 1e6)
    longest, tokens, usd, planned = 0, 0, 0.0, 0
    waiting: list[int] = []  # the longest prompt each cohort in flight may ask with
    while True:
        usage = Usage(planned, tokens, usd, 0.0, most * len(waiting), longest)
        wanted = [Demand(1, most)] * (flight - len(waiting))
        fits = allowance(budget, usage, CEILING, wanted)
        assert fits.reason or fits.cohorts == len(wanted)
        planned += fits.cohorts
        waiting += [math.ceil(longest * PROMPT_GROWTH) or first] * fits.cohorts
        if not waiting:
            assert fits.reason
            break
        limit = waiting.pop(rng.randrange(len(waiting)))
        for _ in range(rng.randint(1, most)):
            prompt, answer = rng.randint(1, limit), rng.randint(0, CEILING.max_tokens)
            tokens += prompt + answer
            usd += (prompt * CEILING.prompt_usd + answer * CEILING.completion_usd) / 1e6
            longest = max(longest, prompt)
    assert planned <= budget.proposals
    assert tokens <= cap
    assert usd <= dollars * (1 + 1e-9)


def test_the_tokens_of_agents_are_reserved_whatever_prompts_take() -> None:
    agent = CEILING.of_tokens(400)
    assert agent == Price(400, 400 * 10.0 / 1e6)

    usage = Usage(0, tokens=100, reserved=agent)
    wanted = [Demand(1, reserved=agent)] * 4
    found = allowance(Budget(100, tokens=1500), usage, CEILING, wanted)

    assert found.cohorts == 2
    assert found.reason.startswith("budget of 1500 tokens spent: 100 are used")


def test_an_agent_is_charged_what_its_requests_took_and_says_nothing_of_prompts() -> None:
    task = Prompt("", "A task of some length.", role=Role.AGENT)
    replies = [
        Completion("files", prompt_tokens=900, completion_tokens=50, cost_usd=0.25),
        Completion("files of an agent that asked no model"),
    ]

    found = charge(Budget(tokens=5_000), CEILING, [task, task], replies)

    assert found == Charge(950, 0.25, 0)
    assert unreserved_tokens([task], 0) == 0


def test_an_agent_has_what_the_scarcer_cap_leaves_at_the_highest_price() -> None:
    usage = Usage(0, tokens=900, cost_usd=0.5)

    assert tokens_left(Budget(100), usage, CEILING) is None
    assert tokens_left(Budget(100, tokens=1500), usage, CEILING) == 600
    assert tokens_left(Budget(100, cost_usd=0.504), usage, CEILING) == 400
    assert tokens_left(Budget(100, tokens=1500, cost_usd=0.504), usage, CEILING) == 400
    assert tokens_left(Budget(100, tokens=100, cost_usd=0.1), usage, CEILING) == 0
    assert tokens_left(Budget(100, cost_usd=0.1), usage, PriceCeiling(1000)) is None
