"""Adaptive time-outs, without a clock."""

import asyncio
import random

import pytest

from app.adapters.model.congestion.timeouts import FEWEST, AdaptiveTimeout, Attempts


def after_answers(*seconds: float, least: float = 0.5, most: float = 60.0) -> AdaptiveTimeout:
    timeout = AdaptiveTimeout(least, most)
    for took in seconds:
        timeout = timeout.answered(took)
    return timeout


def test_the_time_out_is_the_longest_before_enough_answers() -> None:
    assert after_answers(*[1.0] * (FEWEST - 1)).seconds() == 60.0
    assert after_answers(*[1.0] * FEWEST).seconds() == pytest.approx(2.0)


def test_the_slowest_recent_answer_decides_and_fades() -> None:
    slow = after_answers(*[1.0] * 50, 8.0, 1.0)
    assert slow.seconds() > 15.0
    for _ in range(1000):
        slow = slow.answered(1.0)
    assert slow.seconds() == pytest.approx(2.0)


def test_it_stays_within_its_bounds() -> None:
    assert after_answers(*[0.01] * 50).seconds() == 0.5
    assert after_answers(*[50.0] * 50).seconds() == 60.0


def test_each_time_out_doubles_the_time_of_the_next_attempt() -> None:
    timeout = after_answers(*[1.0] * 50)
    assert [timeout.seconds(n) for n in range(7)] == pytest.approx([2, 4, 8, 16, 32, 60, 60])


def test_an_endpoint_that_became_slow_is_given_more_time_until_it_answers() -> None:
    timeout = after_answers(*[1.0] * 50).timed_out().timed_out()
    assert timeout.seconds() == pytest.approx(2.0), "two that hang are two that hang"
    for expected in (4.0, 8.0, 16.0):
        timeout = timeout.timed_out()
        assert timeout.seconds() == pytest.approx(expected)
    assert timeout.answered(5.0).seconds() == pytest.approx(10.0)


@pytest.mark.parametrize("sigma", [0.3, 0.6])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_answers_of_uneven_length_are_hardly_ever_cut_off(sigma: float, seed: int) -> None:
    rng = random.Random(seed)
    timeout, cut = AdaptiveTimeout(0.0, 600.0), 0
    for _ in range(5000):
        took = rng.lognormvariate(1.0, sigma)
        if took > timeout.seconds():
            cut += 1
            took = min(took, timeout.seconds(earlier_timeouts=1))
        timeout = timeout.answered(took)
    assert cut <= 10


def test_an_attempt_under_way_takes_the_newest_time_out() -> None:
    async def work() -> float:
        attempts = Attempts(0.05, 60.0)
        began = asyncio.get_running_loop().time()

        async def hang() -> None:
            async with attempts.limited(60.0, earlier_timeouts=0):
                await asyncio.Event().wait()

        hanging = asyncio.create_task(hang())
        await asyncio.sleep(0)
        for _ in range(FEWEST):
            attempts.answered(0.05)
        with pytest.raises(TimeoutError):
            await hanging
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(work()) < 45.0


def test_the_last_attempt_has_all_of_its_time() -> None:
    async def work() -> None:
        attempts = Attempts(0.01, 60.0)
        for _ in range(FEWEST):
            attempts.answered(0.01)
        async with attempts.limited(60.0, earlier_timeouts=None):
            await asyncio.sleep(0.2)
        with pytest.raises(TimeoutError):
            async with attempts.limited(60.0, earlier_timeouts=0):
                await asyncio.Event().wait()

    asyncio.run(work())
