"""The model of continuous batching, on a simulated clock."""

import heapq
import itertools
from collections.abc import Callable

import pytest

from mock_llm.engine import Batch, BatchedSequence, Speed


class Call:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """Time that stands still until `run`."""

    def __init__(self) -> None:
        self.now = 100.0
        self._calls: list[tuple[float, int, Call]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Call:
        call = Call(lambda: callback(*args) and None)
        heapq.heappush(self._calls, (when, next(self._order), call))
        return call

    def run(self, until: float = 1e9) -> None:
        while self._calls and self._calls[0][0] <= 100.0 + until:
            self.now, _, call = heapq.heappop(self._calls)
            if call.callback is not None:
                call.callback()


class Bench:
    """A batch, and the time at which each of its sequences was done."""

    def __init__(self, **speed: float | None) -> None:
        self.clock = Clock()
        self.batch = Batch(Speed(**speed), self.clock)  # type: ignore[arg-type]
        self.done: dict[str, float] = {}

    def add(self, name: str, tokens: float = 0, head: float = 0.0) -> BatchedSequence:
        def note() -> None:
            self.done[name] = self.clock.now - 100.0

        sequence = BatchedSequence(head, tokens, note)
        self.batch.start([sequence])
        return sequence


def test_without_a_speed_a_sequence_takes_its_latency():
    bench = Bench(max_num_seqs=2)
    for name in "abc":
        bench.add(name, head=1.0)

    assert (bench.batch.running, bench.batch.waiting) == (2, 1)
    bench.clock.run()

    assert bench.done == {"a": 1.0, "b": 1.0, "c": 2.0}


def test_a_lone_sequence_makes_tokens_at_the_given_speed():
    bench = Bench(tokens_per_second=50.0, slowdown=0.5)
    bench.add("a", tokens=100, head=0.5)

    bench.clock.run()

    assert bench.done["a"] == pytest.approx(2.5)


def test_steps_take_longer_the_more_sequences_share_them():
    bench = Bench(tokens_per_second=100.0, slowdown=0.02)
    for n in range(51):
        bench.add(str(n), tokens=100)

    bench.clock.run()

    # One second, times 1 + 50 x 0.02.
    assert list(bench.done.values()) == [pytest.approx(2.0)] * 51


def test_a_sequence_that_joins_slows_the_running_ones_from_then_on():
    bench = Bench(tokens_per_second=100.0, slowdown=1.0)
    bench.add("first", tokens=200)
    bench.add("second", tokens=50, head=1.0)

    bench.clock.run()

    # One second alone makes 100; both at 50/s for one second; then the last 50 of the first, alone.
    assert bench.done["second"] == pytest.approx(2.0)
    assert bench.done["first"] == pytest.approx(2.5)


def test_a_withdrawn_sequence_frees_its_slot_and_is_never_done():
    bench = Bench(tokens_per_second=100.0, slowdown=0.0, max_num_seqs=1)
    running = bench.add("running", tokens=1000)
    queued = bench.add("queued", tokens=1000)
    bench.add("last", tokens=100)
    bench.clock.run(1.0)

    bench.batch.withdraw(queued)
    bench.batch.withdraw(running)
    bench.batch.withdraw(running)
    bench.clock.run()

    assert list(bench.done) == ["last"]
    assert bench.done["last"] == pytest.approx(1.0)
    assert (bench.batch.running, bench.batch.waiting) == (0, 0)


def test_sequences_above_the_limit_in_flight_are_not_accepted():
    bench = Bench(max_num_seqs=2, max_num_queued_reqs=3)
    bench.add("a", head=1.0)
    bench.add("b", head=1.0)

    assert bench.batch.accepts(1)
    assert not bench.batch.accepts(2)
    bench.add("c", head=1.0)
    assert not bench.batch.accepts(1)


def test_the_share_of_a_sequence_grows_from_its_first_token_to_its_end():
    bench = Bench(tokens_per_second=10.0, slowdown=0.0)
    sequence = bench.add("a", tokens=20, head=1.0)
    shares = []
    for seconds in (0.5, 1.0, 2.0, 2.5):
        bench.clock.call_at(
            100.0 + seconds, lambda: shares.append(round(bench.batch.share(sequence), 3))
        )
    bench.clock.run()

    assert shares == [0.0, 0.0, 0.5, 0.75]
    assert bench.batch.share(sequence) == 1.0
    assert bench.done["a"] == pytest.approx(3.0)
