"""The window of an endpoint, against a simulated endpoint: deterministic, without a clock."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.model.congestion.window import Bounds, Window

SECONDS = 0.8


@dataclass
class Simulation:
    """An endpoint that refuses at once what is beyond its capacity, and a client with endless work.

    Attributes:
      capacity: Requests it works at, by the time.
      failing: Share of the requests that it refuses whatever its load.
      spread: Sigma of the latency's logarithm; with 0.0 answers come in waves.
      callers: Requests that are made at once, at most.
      samples: (time, window, in service) at every answer.
    """

    window: Window
    capacity: Callable[[float], int]
    seed: int
    failing: Callable[[float], float] | float = 0.0
    dead: Callable[[float], bool] = lambda now: False
    refusal_seconds: float = 0.005
    spread: float = 0.3
    callers: int = 10_000
    now: float = 0.0
    in_flight: int = 0
    working: int = 0
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    served: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    shrunk: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> "Simulation":
        rng = random.Random(self.seed)
        events: list[tuple[float, int, float, bool]] = []
        order = 0
        while self.now < seconds:
            while self.in_flight < min(self.window.open, self.callers):
                self.in_flight += 1
                order += 1
                refused = (
                    self.working >= self.capacity(self.now)
                    or self.dead(self.now)
                    or rng.random() < self._failing()
                )
                self.working += not refused
                served_in = SECONDS * rng.lognormvariate(0, self.spread)
                takes = self.refusal_seconds if refused else served_in
                heapq.heappush(events, (self.now + takes, order, self.now, refused))
            self.now, _, sent_at, refused = heapq.heappop(events)
            answered = self.window.refused if refused else self.window.served
            was = self.window
            self.window = answered(self.now, sent_at, self.in_flight)
            if self.window.decreased_at > was.decreased_at:
                self.shrunk.append(self.now)
            self.in_flight -= 1
            self.working -= not refused
            (self.refused if refused else self.served).append(self.now)
            self.samples.append((self.now, int(self.window.size), self.working))
        return self

    def _failing(self) -> float:
        return self.failing(self.now) if callable(self.failing) else self.failing

    def windows(self, after: float, before: float = float("inf")) -> list[int]:
        return [size for at, size, _ in self.samples if after <= at < before]

    def used(self, capacity: int, after: float, before: float) -> float:
        """Returns the share of the capacity that was at work, by what was served."""
        n = sum(1 for at in self.served if after <= at < before)
        return n * SECONDS * MEAN / (before - after) / capacity


MEAN = 1.046
"""Mean of the latency's lognormal factor, exp(0.3² / 2)."""


@pytest.mark.parametrize(("capacity", "seed"), [(8, 1), (8, 2), (20, 1), (64, 2), (200, 1)])
def test_the_window_finds_the_capacity_and_stays_there(capacity: int, seed: int) -> None:
    opened = Window.opened(Bounds(1, 16, 512))
    simulated = Simulation(opened, lambda now: capacity, seed).run(160)
    assert simulated.used(capacity, 60, 160) >= 0.9
    steady = simulated.windows(60)
    middle = sum(steady) / len(steady)
    assert max(steady) <= 1.25 * middle
    assert min(steady) >= 0.75 * middle
    assert 0.75 * capacity <= middle <= 1.25 * capacity
    refused = sum(1 for at in simulated.refused if at >= 60)
    # A few refusals are enough, and soon reached at eight slots.
    most = 0.05 if capacity > 8 else 0.1
    assert refused <= most * sum(1 for at in simulated.served if at >= 60)


@pytest.mark.parametrize("spread", [0.02, 0.3])
@pytest.mark.parametrize("refusal_seconds", [0.08, 0.2, 0.4, 0.8])
def test_an_endpoint_that_refuses_slowly_refuses_fewer_than_it_answers(
    refusal_seconds: float, spread: float
) -> None:
    refused = []
    for seed in range(6):
        opened = Window.opened(Bounds(1, 40, 128))
        simulated = Simulation(
            opened, lambda now: 12, seed, refusal_seconds=refusal_seconds, spread=spread
        ).run(96)
        refused.append(
            sum(at > 32 for at in simulated.refused) / sum(at > 32 for at in simulated.served)
        )
    refused.sort()
    assert refused[3] <= 0.5
    assert refused[5] <= 0.6


@pytest.mark.parametrize(("first", "then"), [(64, 16), (16, 64), (128, 100), (40, 160)])
def test_the_window_follows_a_capacity_that_changes(first: int, then: int) -> None:
    opened = Window.opened(Bounds(1, 32, 512))
    capacity: Callable[[float], int] = lambda now: first if now < 80 else then  # noqa: E731
    simulated = Simulation(opened, capacity, 1).run(200)
    assert simulated.used(first, 40, 80) >= 0.9
    assert simulated.used(then, 120, 200) >= 0.9
    steady = simulated.windows(120)
    middle = sum(steady) / len(steady)
    assert 0.75 * middle <= min(steady) <= max(steady) <= 1.25 * middle


def test_the_window_shrinks_at_most_once_in_a_round_trip() -> None:
    opened = Window.opened(Bounds(1, 256, 256))
    simulated = Simulation(opened, lambda now: 200 if now < 30 else 20, 5).run(90)
    shrunk = [at for at in simulated.shrunk if at > 2]
    assert len(shrunk) > 5
    apart = [b - a for a, b in itertools.pairwise(shrunk)]
    assert min(apart) >= 0.5 * SECONDS


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_an_endpoint_that_fails_by_itself_keeps_its_window(seed: int) -> None:
    opened = Window.opened(Bounds(1, 32, 32))
    simulated = Simulation(opened, lambda now: 1000, seed, failing=0.17).run(60)
    clean = 32 / (SECONDS * MEAN) * 60
    assert len(simulated.served) >= 0.85 * clean


@pytest.mark.parametrize("seed", range(1, 13))
def test_failures_that_come_in_waves_are_not_taken_for_a_full_endpoint(seed: int) -> None:
    opened = Window.opened(Bounds(1, 32, 128))
    simulated = Simulation(opened, lambda now: 1000, seed, failing=0.17, spread=0.02, callers=40)
    simulated.run(30)
    assert len(simulated.served) >= 0.85 * 32 / SECONDS * 30


@pytest.mark.parametrize("spread", [0.02, 0.3])
@pytest.mark.parametrize("failing", [0.01, 0.03, 0.06, 0.1, 0.17, 0.25])
def test_few_endpoints_that_fail_by_themselves_are_taken_for_full(
    failing: float, spread: float
) -> None:
    mean = MEAN if spread == 0.3 else 1.0
    kept = []
    for seed in range(200, 206):
        opened = Window.opened(Bounds(1, 32, 32))
        simulated = Simulation(
            opened, lambda now: 1000, seed, failing=failing, spread=spread, callers=40
        ).run(30)
        kept.append(len(simulated.served) / (32 / (SECONDS * mean) * 30))
    kept.sort()
    # A window assumes 15 % of failures: one that sees a quarter is narrower at times.
    assert kept[3] >= (0.93 if failing < 0.2 else 0.83)
    assert kept[0] >= (0.85 if failing < 0.2 else 0.75)


def test_a_refusal_now_and_then_does_not_shrink_the_window() -> None:
    window = Window.opened(Bounds(1, 32, 64))
    for n in range(400):
        answered = window.refused if n % 20 == 0 else window.served
        window = answered(n / 40, n / 40 - 0.8, 32)
    assert window.size >= 32


def test_an_endpoint_that_fails_by_itself_is_not_overloaded() -> None:
    opened = Window.opened(Bounds(1, 32, 512))
    simulated = Simulation(opened, lambda now: 64, 1, failing=0.1).run(240)
    assert simulated.used(64, 80, 240) >= 0.85
    steady = simulated.windows(80)
    assert sum(steady) / len(steady) <= 1.35 * 64


def test_failures_that_ended_hide_no_full_endpoint() -> None:
    refused = []
    for seed in range(3):
        simulated = Simulation(
            Window.opened(Bounds(1, 32, 64)),
            lambda now: 1000 if now < 60 else 40,
            seed,
            failing=lambda now: 0.25 if now < 60 else 0.0,
            refusal_seconds=0.4,
        ).run(160)
        late = sum(at > 100 for at in simulated.served)
        refused.append(sum(at > 100 for at in simulated.refused) / late)
    assert sorted(refused)[1] <= 0.45


def test_the_window_reopens_when_an_endpoint_recovers() -> None:
    opened = Window.opened(Bounds(1, 64, 64))
    simulated = Simulation(
        opened, lambda now: 64, 1, dead=lambda now: 30 <= now < 40, refusal_seconds=0.2
    ).run(80)
    asked = [at for at in simulated.refused if 34 <= at < 40]
    assert len(asked) <= 40, "a dead endpoint receives one request at a time"
    assert simulated.used(64, 50, 80) >= 0.9


def test_a_refusal_leaves_its_slot_empty_until_something_is_served() -> None:
    window = Window.opened(Bounds(1, 10, 10))
    window = window.served(1.0, 0.0, 10)
    refused = window.refused(1.1, 1.05, 10)
    assert refused.open == int(refused.size) - 1
    assert refused.served(1.2, 0.1, 9).open == int(refused.size)


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = Window.opened(Bounds(1, 32, 64))
    for n in range(100):
        window = window.served(n + 0.5, float(n), 4)
    assert window.size == 32


def test_the_window_stays_within_its_bounds() -> None:
    window = Window.opened(Bounds(4, 8, 12))
    for n in range(200):
        window = window.served(n / 10, n / 10 - 0.5, 12)
    assert window.size == 12
    for n in range(200):
        window = window.refused(20 + n, 20 + n - 0.1, 12)
    assert int(window.size) == 4


@given(
    start=st.integers(1, 64),
    answers=st.lists(st.tuples(st.booleans(), st.floats(0.0, 2.0)), min_size=1, max_size=40),
    times=st.integers(1, 12),
)
def test_no_order_of_results_closes_the_window_or_leaves_its_bounds(
    start: int, answers: list[tuple[bool, float]], times: int
) -> None:
    window, now = Window.opened(Bounds(1, start, 64)), 0.0
    for refused, apart in answers * times:
        now += apart
        answered = window.refused if refused else window.served
        window = answered(now, now - 0.5, window.open)
        assert 1 <= window.open <= 64


def test_a_window_whose_requests_are_all_refused_keeps_one_slot() -> None:
    window = Window.opened(Bounds(1, 2, 64))
    for n in range(2000):
        window = window.refused(n * 0.03, n * 0.03 - 0.01, window.open)
    assert window.open == 1


@pytest.mark.parametrize("bounds", [(0, 1, 1), (2, 1, 3), (1, 4, 3)])
def test_impossible_bounds_are_refused(bounds: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="least <= start <= most"):
        Bounds(*bounds)


@pytest.mark.parametrize("slots", [16, 64])
def test_a_queue_inside_the_engine_shrinks_the_window_to_its_slots(slots: int) -> None:
    """An engine such as vLLM refuses nothing: it queues, and shows the length of its queue."""
    window, now = Window.opened(Bounds(1, 128, 256)), 0.0
    sizes = []
    for _ in range(400):
        now += 0.25
        asked = window.open
        running, waiting = min(slots, asked), max(0, asked - slots)
        latency = 0.8 * asked / running
        for _ in range(max(1, int(running * 0.25 / 0.8))):
            window = window.served(now, now - latency, asked)
        window = window.queued(now, running, waiting, asked)
        sizes.append(int(window.size))
    steady = sizes[200:]
    middle = sum(steady) / len(steady)
    assert min(min(size, slots) for size in steady) >= 0.9 * slots
    assert max(steady) <= 1.25 * middle
    assert min(steady) >= 0.75 * middle


def test_a_queue_takes_a_tenth_of_what_is_in_flight_however_few_were_when_results_came() -> None:
    window = Window.opened(Bounds(1, 72, 128))
    for result in range(200):  # a run that begins: half of the window is in use
        window = window.served(1.0 + 0.01 * result, 0.5 + 0.01 * result, 36)
    assert window.size == 72
    assert window.queued(4.0, 64, 8, 72).size == pytest.approx(0.9 * 72)


def test_a_short_queue_in_the_engine_keeps_the_window_as_it_is() -> None:
    window = Window.opened(Bounds(1, 32, 64)).served(1.0, 0.0, 32)
    held = window.queued(1.1, 30, 2, 32)
    assert held.size == window.size
    assert held.served(1.2, 0.2, 32).size == window.size
