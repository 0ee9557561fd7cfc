"""Whether a `Retry-After` applies to every request; without a clock."""

import random

from app.adapters.model.congestion.retry_after import FEWEST, RetryAfter


def test_refusals_of_all_that_is_sent_retry_after_everybody() -> None:
    retry_after = RetryAfter()
    for n in range(FEWEST):
        assert retry_after.until < 0
        retry_after = retry_after.refused(100.0 + n / 100, 5.0, in_flight=32)
    assert retry_after.until == 105.0 + (FEWEST - 1) / 100


def test_the_only_request_in_flight_decides_for_all() -> None:
    assert RetryAfter().refused(100.0, 5.0, in_flight=1).until == 105.0


def test_a_refusal_without_a_retry_after_holds_nothing() -> None:
    retry_after = RetryAfter()
    for _ in range(50):
        retry_after = retry_after.refused(100.0, 0.0, in_flight=1)
    assert retry_after == RetryAfter()


def test_an_answer_to_a_younger_request_ends_a_series() -> None:
    retry_after = RetryAfter()
    for _ in range(FEWEST):
        retry_after = retry_after.refused(100.0, 5.0, in_flight=32)
    assert retry_after.served(sent_at=99.0) == retry_after, (
        "it was sent before the endpoint had enough"
    )
    assert retry_after.served(sent_at=100.5) == RetryAfter()


def test_an_endpoint_that_refuses_now_and_then_is_hardly_ever_held() -> None:
    rng, retry_after, now, held = random.Random(1), RetryAfter(), 0.0, 0
    for _ in range(10_000):
        now += 0.025
        retry_after = retry_after.after_sending()
        if rng.random() < 0.1:
            retry_after = retry_after.refused(now, 1.0, in_flight=32)
            held += retry_after.until > now
        else:
            retry_after = retry_after.served(sent_at=now - 0.8)
    assert held <= 10


def test_a_series_ends_when_its_retry_after_has_passed() -> None:
    retry_after = RetryAfter()
    for n in range(20):
        retry_after = retry_after.refused(100.0 * n, 5.0, in_flight=32)
    assert retry_after.until < 0
