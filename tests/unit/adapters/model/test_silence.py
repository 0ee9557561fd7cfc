"""How long an attempt may be silent, and whether a reply repeats itself."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.adapters.model.congestion.silence import FEWEST, SHARED, FirstTokens, Silence
from app.adapters.model.providers.repetition import repeats


def after_tokens(*seconds: float, least: float = 0.5, most: float = 300.0) -> FirstTokens:
    first = FirstTokens(least, most)
    for took in seconds:
        first = first.after_token(took)
    return first


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


def test_the_wait_is_the_longest_before_enough_first_tokens() -> None:
    assert after_tokens(*[1.0] * (FEWEST - 1)).wait_seconds == 300.0
    assert after_tokens(*[1.0] * FEWEST).wait_seconds == pytest.approx(3.0)


def test_the_slowest_recent_first_token_decides_and_fades() -> None:
    slow = after_tokens(*[1.0] * 50, 8.0, 1.0)
    assert slow.wait_seconds > 20.0
    for _ in range(1000):
        slow = slow.after_token(1.0)
    assert slow.wait_seconds == pytest.approx(3.0)


def test_the_wait_has_bounds() -> None:
    assert after_tokens(*[0.001] * 50).wait_seconds == 0.5
    assert after_tokens(*[1000.0] * 50).wait_seconds == 300.0


def test_an_endpoint_that_has_become_slow_gets_the_longest_wait_again() -> None:
    slow = after_tokens(*[1.0] * 50)
    for _ in range(SHARED):
        assert slow.wait_seconds < 300.0
        slow = slow.after_timeout()
    assert slow.wait_seconds == 300.0
    assert slow.after_token(1.0).wait_seconds < 300.0


def test_first_tokens_move_the_limit_of_an_attempt_under_way() -> None:
    async def work() -> None:
        silence = Silence(0.05, 60.0)
        with silence.attempt(1000.0, repeated=False) as hangs:

            async def hang() -> None:
                async with hangs.limited():
                    await asyncio.Event().wait()

            hanging = asyncio.create_task(hang())
            await asyncio.sleep(0)
            for _ in range(FEWEST):
                with silence.attempt(1000.0, repeated=False) as answered:
                    answered.hear(1)
            with pytest.raises(TimeoutError):
                await hanging
            assert hangs.expired
        assert 1.0 < hangs.waited_seconds + 0.5 < 30.0

    run(work)


def test_a_repeated_attempt_has_all_the_time() -> None:
    async def work() -> None:
        silence = Silence(0.01, 12.0)
        for _ in range(FEWEST):
            with silence.attempt(100.0, repeated=False) as answered:
                answered.hear(1)
        with silence.attempt(100.0, repeated=False) as first, pytest.raises(TimeoutError):
            async with first.limited():
                await asyncio.Event().wait()
        with silence.attempt(100.0, repeated=True) as again:
            async with again.limited():
                await asyncio.sleep(0.5)
        assert (first.expired, again.expired) == (True, False)

    run(work)


def test_writing_costs_no_time_of_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now)
        with Silence(0.01, 5.0).attempt(9.0, repeated=False) as attempt:
            async with attempt.limited():
                for _ in range(5):
                    attempt.hear(1)
                    await asyncio.sleep(0)
                    now += 0.05
            assert attempt.seconds == pytest.approx(0.25)
            assert attempt.waited_seconds == pytest.approx(0.05)

    run(work)


@pytest.mark.parametrize("passage", ["0", "0, ", "the same line\n", "x = x + 1\n" * 20 + "end\n"])
def test_one_passage_again_and_again_is_a_repetition(passage: str) -> None:
    times = max(10, 5000 // len(passage))

    assert repeats("def f():\n" + passage * times)
    assert repeats("def f():\n" + passage * times + passage[: len(passage) // 2])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0, " * 300,
        "".join(f"line {n}\n" for n in range(2000)),
        "same\n" * 1000 + "and then an end that is something else",
        "".join(f"    weights[{n}] = {n * n}\n" for n in range(500)),
    ],
)
def test_tables_numbered_lines_and_ended_repetitions_are_none(text: str) -> None:
    assert not repeats(text)
