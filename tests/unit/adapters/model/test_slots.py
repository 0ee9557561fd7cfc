"""The slots of a deployment, with leases in a Redis that is a value of this process.

`tests/integration/test_model_slots.py` has what needs a server.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis, FakeServer
from redis.asyncio import Redis

from app.adapters.model.congestion import slots as module
from app.adapters.model.congestion.slots import DeploymentSlots

Opening = Callable[[], Redis]
"""Opens a client of the deployment's Redis."""


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def client(server: FakeServer) -> FakeRedis:
    return FakeRedis(server=server)


@pytest.fixture
def opening(server: FakeServer) -> Opening:
    return lambda: FakeAsyncRedis(server=server)


class Worker:
    """A process of the deployment: a client of its own, and the slots of its endpoints."""

    def __init__(self, opening: Opening, lease_seconds: float) -> None:
        self._redis = opening()
        self._lease_seconds = lease_seconds
        self._slots: dict[str, DeploymentSlots] = {}

    async def take(self, endpoint: str, limit: int, slots: int = 1) -> list[str]:
        if endpoint not in self._slots:
            self._slots[endpoint] = DeploymentSlots(
                self._redis, endpoint, limit, lease_seconds=self._lease_seconds
            )
        return await self._slots[endpoint].take(slots)

    async def give(self, endpoint: str, names: Sequence[str]) -> None:
        await self._slots[endpoint].give(names)

    @asynccontextmanager
    async def slot(self, endpoint: str, limit: int) -> AsyncIterator[None]:
        names = await self.take(endpoint, limit)
        try:
            yield
        finally:
            await self.give(endpoint, names)

    def waiting(self, endpoint: str) -> int:
        return self._slots[endpoint].waiting if endpoint in self._slots else 0

    async def close(self) -> None:
        for slots in self._slots.values():
            await slots.close()
        await self._redis.aclose()


class Load:
    """Requests in flight, and those that are done, by name."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.done: Counter[str] = Counter()

    async def work(self, worker: Worker, limit: int, seconds: float, name: str = "") -> None:
        async with worker.slot("e", limit):
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(seconds)
            self.inside -= 1
            self.done[name] += 1


def run(
    opening: Opening, n: int, act: Callable[..., Awaitable[None]], lease_seconds: float = 60.0
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            workers = [Worker(opening, lease_seconds) for _ in range(n)]
            for worker in workers:
                stack.push_async_callback(worker.close)
            await asyncio.wait_for(act(*workers), 200)

    asyncio.run(main())


async def until(true: Callable[[], object]) -> None:
    """Waits; `run` says how long at most."""
    while not true():
        await asyncio.sleep(0.02)


def test_all_workers_together_hold_no_more_than_the_limit(opening: Opening) -> None:
    load = Load()

    async def act(*workers: Worker) -> None:
        await asyncio.gather(*(load.work(workers[n % 4], 6, 0.01) for n in range(200)))

    run(opening, 4, act)
    assert load.most == 6
    assert load.done[""] == 200


def test_slots_of_one_request_are_taken_together_and_within_the_limit(opening: Opening) -> None:
    inside, most = 0, 0

    async def act(*workers: Worker) -> None:
        async def one(worker: Worker, wanted: int) -> None:
            nonlocal inside, most
            names = await worker.take("e", 6, wanted)
            assert len(names) == wanted
            inside += wanted
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= wanted
            await worker.give("e", names)

        await asyncio.gather(*(one(workers[n % 3], 1 + n % 5) for n in range(60)))

    run(opening, 3, act)
    assert most <= 6


def test_more_slots_than_there_are_is_all_of_them(opening: Opening) -> None:
    async def act(worker: Worker) -> None:
        names = await worker.take("e", 2, 8)
        assert len(names) == 2
        await worker.give("e", names)

    run(opening, 1, act)


def test_requests_of_one_worker_are_served_in_order(opening: Opening) -> None:
    order: list[int] = []

    async def act(worker: Worker) -> None:
        async def one(n: int) -> None:
            async with worker.slot("e", 1):
                order.append(n)

        await asyncio.gather(*(one(n) for n in range(20)))

    run(opening, 1, act)
    assert order == list(range(20))


def test_endpoints_are_counted_apart(opening: Opening) -> None:
    async def act(worker: Worker) -> None:
        async with worker.slot("one", 1), worker.slot("other", 1):
            pass

    run(opening, 1, act)


def test_a_cancelled_request_frees_its_slot(opening: Opening) -> None:
    async def act(holder: Worker, other: Worker) -> None:
        async with holder.slot("e", 1):
            waits = asyncio.create_task(Load().work(other, 1, 0.0))
            await asyncio.sleep(0.1)
            assert other.waiting("e") == 1
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
        async with holder.slot("e", 1):
            pass
        async with other.slot("e", 1):
            pass

    run(opening, 2, act)


def test_a_slot_given_back_wakes_the_next_worker_before_it_polls(
    opening: Opening, client: FakeRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 600.0)

    async def act(holder: Worker, other: Worker) -> None:
        async with holder.slot("e", 1):
            waits = asyncio.create_task(Load().work(other, 1, 0.0))
            await until(lambda: client.keys("evoq:slots:*:next"))
        await waits

    run(opening, 2, act, lease_seconds=600.0)


def test_a_flushed_redis_forgets_for_a_third_of_a_lease_only(
    opening: Opening, client: FakeRedis
) -> None:
    async def act(holder: Worker, other: Worker) -> None:
        async with holder.slot("e", 1):
            client.flushall()
            await until(lambda: client.keys("evoq:slots:*:held"))
            waits = asyncio.create_task(Load().work(other, 1, 0.0))
            await until(lambda: client.keys("evoq:slots:*:next") or waits.done())
            assert not waits.done(), "the slot was entered again"
            client.flushall()
            await until(lambda: client.keys("evoq:slots:*:held"))
        await waits

    run(opening, 2, act, lease_seconds=6.0)
