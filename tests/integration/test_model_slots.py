"""The slots of a deployment, with leases in a real Valkey."""

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.adapters.model.congestion import slots as module
from app.adapters.model.congestion.slots import DeploymentSlots
from app.embedded.valkey import EmbeddedValkey

HOLDER = """
import asyncio, sys
from app.adapters.model.congestion.slots import DeploymentSlots, connected

async def hold():
    slots = DeploymentSlots(connected(sys.argv[1]), "e", 2, lease_seconds=float(sys.argv[2]))
    await slots.take()
    await slots.take()
    print("held", flush=True)
    await asyncio.sleep(600)

asyncio.run(hold())
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedValkey, str]]:
    server = EmbeddedValkey(tmp_path_factory.mktemp("valkey"))
    yield server, server.start()
    server.stop()


@pytest.fixture
def server(started: tuple[EmbeddedValkey, str]) -> EmbeddedValkey:
    return started[0]


@pytest.fixture
def address(started: tuple[EmbeddedValkey, str]) -> str:
    server, address = started
    if not server.running:
        server.start()
    with redis.Redis.from_url(address) as client:
        client.flushall()
    return address


class Worker:
    """A process of the deployment: a client of its own, and the slots of its endpoints."""

    def __init__(self, address: str, lease_seconds: float) -> None:
        self._redis = patient(address)
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


def patient(address: str) -> Redis:
    """A client that takes a Redis for gone when it is gone, and not when the machine is crowded."""
    return Redis.from_url(address, socket_timeout=120.0, retry=Retry(NoBackoff(), 0))


def run(
    address: str, n: int, act: Callable[..., Awaitable[None]], lease_seconds: float = 60.0
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            workers = [Worker(address, lease_seconds) for _ in range(n)]
            for worker in workers:
                stack.push_async_callback(worker.close)
            await asyncio.wait_for(act(*workers), 200)

    asyncio.run(main())


def test_all_workers_together_hold_no_more_than_the_limit(address: str) -> None:
    load = Load()

    async def act(*workers: Worker) -> None:
        await asyncio.gather(*(load.work(workers[n % 4], 6, 0.01) for n in range(200)))

    run(address, 4, act)
    assert load.most == 6
    assert load.done[""] == 200


def test_a_busy_worker_does_not_starve_another(address: str) -> None:
    load = Load()

    async def act(busy: Worker, modest: Worker) -> None:
        tasks = [asyncio.create_task(load.work(busy, 2, 0.02, "busy")) for _ in range(400)]
        await until(lambda: load.done["busy"] >= 10)
        before = load.done["busy"]
        for _ in range(10):
            await load.work(modest, 2, 0.02, "modest")
        assert load.done["busy"] - before <= 120, "each of the ten waited for a turn or two"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(address, 2, act)
    assert load.done["modest"] == 10


async def until(true: Callable[[], object]) -> None:
    """Waits; `run` says how long at most."""
    while not true():
        await asyncio.sleep(0.02)


def test_slots_of_one_request_are_taken_together_and_within_the_limit(address: str) -> None:
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

    run(address, 3, act)
    assert most <= 6


def test_a_request_of_many_slots_is_not_starved_by_single_ones(address: str) -> None:
    load = Load()

    async def act(busy: Worker, modest: Worker) -> None:
        tasks = [asyncio.create_task(load.work(busy, 4, 0.02, "busy")) for _ in range(400)]
        await until(lambda: load.done["busy"] >= 10)
        before = load.done["busy"]
        for _ in range(5):
            await modest.give("e", await modest.take("e", 4, 4))
        assert load.done["busy"] - before <= 150
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(address, 2, act)


def test_more_slots_than_there_are_is_all_of_them(address: str) -> None:
    async def act(worker: Worker) -> None:
        names = await worker.take("e", 2, 8)
        assert len(names) == 2
        await worker.give("e", names)

    run(address, 1, act)


def test_requests_of_one_worker_are_served_in_order(address: str) -> None:
    order: list[int] = []

    async def act(worker: Worker) -> None:
        async def one(n: int) -> None:
            async with worker.slot("e", 1):
                order.append(n)

        await asyncio.gather(*(one(n) for n in range(20)))

    run(address, 1, act)
    assert order == list(range(20))


def test_endpoints_are_counted_apart(address: str) -> None:
    async def act(worker: Worker) -> None:
        async with worker.slot("one", 1), worker.slot("other", 1):
            pass

    run(address, 1, act)


@pytest.mark.timing
def test_a_killed_process_frees_its_slots_when_its_lease_ends(address: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, address, "5"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"

    async def act(worker: Worker) -> None:
        with redis.Redis.from_url(address) as client:
            [held] = client.keys("evoq:slots:*:held")

            def ends() -> list[float]:
                return [end for _, end in client.zrange(held, 0, -1, withscores=True)]

            before = max(ends())
            await until(lambda: ends() and min(ends()) > before)  # renewed while its process lives
        waits = asyncio.create_task(load.work(worker, 2, 0.0))
        await until(lambda: worker.waiting("e"))
        holder.send_signal(signal.SIGKILL)
        await waits

    load = Load()
    try:
        run(address, 1, act)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert load.done[""] == 1


def test_a_cancelled_request_frees_its_slot(address: str) -> None:
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

    run(address, 2, act)


def test_waiting_costs_a_few_commands_a_second(address: str) -> None:
    async def act(holder: Worker, other: Worker) -> None:
        with redis.Redis.from_url(address) as client:
            async with holder.slot("e", 1):
                waits = [asyncio.create_task(Load().work(other, 1, 0.0)) for _ in range(50)]
                await asyncio.sleep(0.3)
                before, began = client.info("stats")["total_commands_processed"], time.monotonic()
                await asyncio.sleep(3.0)
                spent = client.info("stats")["total_commands_processed"] - before
                seconds = time.monotonic() - began
            await asyncio.gather(*waits)
        assert spent <= 27 * seconds, "a look is a script of up to ten commands, once a second"

    run(address, 2, act)


def test_a_slot_given_back_wakes_the_next_worker_before_it_polls(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 600.0)

    async def act(holder: Worker, other: Worker) -> None:
        with redis.Redis.from_url(address) as client:
            async with holder.slot("e", 1):
                waits = asyncio.create_task(Load().work(other, 1, 0.0))
                await until(lambda: client.keys("evoq:slots:*:next"))
            await waits

    run(address, 2, act, lease_seconds=600.0)


def test_a_flushed_redis_forgets_for_a_third_of_a_lease_only(address: str) -> None:
    async def act(holder: Worker, other: Worker) -> None:
        with redis.Redis.from_url(address) as client:
            async with holder.slot("e", 1):
                client.flushall()
                await until(lambda: client.keys("evoq:slots:*:held"))
                waits = asyncio.create_task(Load().work(other, 1, 0.0))
                await until(lambda: client.keys("evoq:slots:*:next") or waits.done())
                assert not waits.done(), "the slot was entered again"
                client.flushall()
                await until(lambda: client.keys("evoq:slots:*:held"))
            await waits

    run(address, 2, act, lease_seconds=6.0)


def test_without_redis_a_worker_makes_one_request_at_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load()

    async def act(worker: Worker) -> None:
        await asyncio.gather(*(load.work(worker, 8, 0.01) for _ in range(20)))

    run(f"unix://{tmp_path}/nothing.sock", 1, act)
    assert load.done[""] == 20
    assert load.most == 1
    assert caplog.text.count("does not answer") == 1


def test_requests_continue_while_redis_is_away(
    server: EmbeddedValkey, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load()

    async def act(worker: Worker) -> None:
        over = asyncio.Event()

        async def keep_working() -> None:
            while not over.is_set():
                await load.work(worker, 3, 0.05)

        async def more() -> None:
            enough = load.done[""] + 10
            await until(lambda: load.done[""] >= enough)

        tasks = [asyncio.create_task(keep_working()) for _ in range(20)]
        await more()
        await asyncio.to_thread(server.stop)
        await more()
        assert "does not answer" in caplog.text
        server.start()  # from a thread that stays: it ends with the one that started it
        await until(lambda: "answers again" in caplog.text)
        await more()
        over.set()
        await asyncio.gather(*tasks)

    with caplog.at_level("INFO"):
        run(address, 1, act)
    assert load.most == 3


def test_workers_without_redis_keep_to_the_limit_together(
    server: EmbeddedValkey, address: str
) -> None:
    load = Load()

    async def act(early: Worker, late: Worker) -> None:
        names = await early.take("e", 8, 8)
        await early.give("e", names[:7])
        names += await late.take("e", 8, 7)
        await asyncio.to_thread(server.stop)
        load.inside = 8
        tasks = [asyncio.create_task(load.work(early, 8, 0.05)) for _ in range(20)]
        await asyncio.sleep(0.5)
        load.inside -= 1
        await early.give("e", names[7:8])
        await asyncio.gather(*tasks)

    run(address, 2, act)
    assert load.done[""] == 20
    assert load.most == 8
