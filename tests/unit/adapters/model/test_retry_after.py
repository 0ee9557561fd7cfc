"""Whether a `Retry-After` is for all; without a clock."""

import random

from app.adapters.model.congestion.retry_after import FEWEST, RetryAfter


def test_refusals_of_all_that_is_sent_hold_everybody() -> None:
    hold = RetryAfter()
    for n in range(FEWEST):
        assert hold.until < 0
        hold = hold.refused(100.0 + n / 100, 5.0, in_flight=32)
    assert hold.until == 105.0 + (FEWEST - 1) / 100


def test_the_only_request_in_flight_speaks_for_all() -> None:
    assert RetryAfter().refused(100.0, 5.0, in_flight=1).until == 105.0


def test_a_refusal_that_asks_for_nothing_holds_nobody() -> None:
    hold = RetryAfter()
    for _ in range(50):
        hold = hold.refused(100.0, 0.0, in_flight=1)
    assert hold == RetryAfter()


def test_an_answer_to_what_was_sent_since_ends_it() -> None:
    hold = RetryAfter()
    for _ in range(FEWEST):
        hold = hold.refused(100.0, 5.0, in_flight=32)
    assert hold.served(sent_at=99.0) == hold, "it was sent before the endpoint had enough"
    assert hold.served(sent_at=100.5) == RetryAfter()


def test_an_endpoint_that_refuses_now_and_then_is_hardly_ever_held() -> None:
    rng, hold, now, held = random.Random(1), RetryAfter(), 0.0, 0
    for _ in range(10_000):
        now += 0.025
        hold = hold.asked()
        if rng.random() < 0.1:
            hold = hold.refused(now, 1.0, in_flight=32)
            held += hold.until > now
        else:
            hold = hold.served(sent_at=now - 0.8)
    assert held <= 10


def test_a_series_ends_with_the_time_it_asked_for() -> None:
    hold = RetryAfter()
    for n in range(20):
        hold = hold.refused(100.0 * n, 5.0, in_flight=32)
    assert hold.until < 0
