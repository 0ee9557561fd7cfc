"""The slots of a deployment, with a real Valkey: what ends, waits and is served in turn."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.embedded.valkey import EmbeddedValkey
from tests.unit.adapters.model.test_slots import Load, Opening, Worker, run, until

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


def patient(address: str) -> Opening:
    """Opens clients that a crowded machine does not make take a Redis for gone."""
    return lambda: Redis.from_url(address, socket_timeout=120.0, retry=Retry(NoBackoff(), 0))


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

    run(patient(address), 2, act)
    assert load.done["modest"] == 10


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

    run(patient(address), 2, act)


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
        run(patient(address), 1, act)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert load.done[""] == 1


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

    run(patient(address), 2, act)


def test_without_redis_a_worker_makes_one_request_at_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load()

    async def act(worker: Worker) -> None:
        await asyncio.gather(*(load.work(worker, 8, 0.01) for _ in range(20)))

    run(patient(f"unix://{tmp_path}/nothing.sock"), 1, act)
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
        run(patient(address), 1, act)
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

    run(patient(address), 2, act)
    assert load.done[""] == 20
    assert load.most == 8
