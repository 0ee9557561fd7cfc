"""When a circuit opens and closes, with a simulated clock."""

import pytest

from app.adapters.model.congestion.circuit_breaker import BreakerRules, CircuitBreaker

RULES = BreakerRules(failures=3, rest_seconds=10.0, longest_rest_seconds=35.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def broken(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(RULES, clock)
    for _ in range(RULES.failures):
        assert breaker.admits()
        breaker.failed()
    return breaker


def test_failures_in_a_row_open_it_and_an_answer_between_starts_the_count_anew():
    breaker = CircuitBreaker(RULES, Clock())
    opened = []
    for _ in range(3):
        breaker.failed()
        opened.append(breaker.open)
    assert opened == [False, False, True]

    breaker = CircuitBreaker(RULES, Clock())
    for _ in range(10):
        breaker.failed()
        breaker.failed()
        breaker.answered()
    assert not breaker.open


def test_after_the_rest_a_single_request_passes():
    clock = Clock()
    breaker = broken(clock)

    assert not breaker.admits()
    assert breaker.rest_seconds == 10.0
    clock.now += 9.9
    assert not breaker.admits()
    clock.now += 0.1
    assert [breaker.admits() for _ in range(5)] == [True, False, False, False, False]


def test_a_trial_that_succeeds_closes_it():
    clock = Clock()
    breaker = broken(clock)
    clock.now += 10

    assert breaker.admits()
    breaker.answered()

    assert not breaker.open
    assert all(breaker.admits() for _ in range(5))


def test_each_trial_that_fails_doubles_the_rest_up_to_a_limit():
    clock = Clock()
    breaker = broken(clock)
    rests = []
    for _ in range(5):
        rests.append(breaker.rest_seconds)
        clock.now += breaker.rest_seconds
        assert breaker.admits()
        breaker.failed()

    assert rests == [10.0, 20.0, 35.0, 35.0, 35.0]


def test_an_answer_after_many_rests_makes_the_next_one_short_again():
    clock = Clock()
    breaker = broken(clock)
    clock.now += 10
    breaker.admits()
    breaker.failed()
    breaker.answered()
    for _ in range(RULES.failures):
        breaker.failed()

    assert breaker.rest_seconds == 10.0


def test_stragglers_that_fail_while_it_is_open_prolong_nothing():
    clock = Clock()
    breaker = broken(clock)
    clock.now += 5
    for _ in range(20):
        breaker.failed()

    assert breaker.rest_seconds == 5.0


def test_a_trial_without_a_result_is_repeated():
    clock = Clock()
    breaker = broken(clock)
    clock.now += 10
    assert breaker.admits()

    clock.now += 9.9
    assert not breaker.admits()
    clock.now += 0.1
    assert breaker.admits()


@pytest.mark.parametrize(("asked", "rests"), [(20.0, 20.0), (3600.0, 35.0)])
def test_a_retry_after_opens_the_circuit_within_the_longest_rest(asked, rests):
    breaker = CircuitBreaker(RULES, Clock())

    breaker.rest(asked)

    assert breaker.rest_seconds == rests
