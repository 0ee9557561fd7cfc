"""The gates of endpoints, against a simulated model and a real Valkey."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from app.adapters.model.congestion import status as endpoint_status
from app.adapters.model.congestion.engine_queue import EngineQueue, metrics_url, parse
from app.adapters.model.congestion.gate import AdaptiveGate, Ended, RequestResult, Semaphore
from app.adapters.model.congestion.slots import connected
from app.adapters.model.congestion.status import EndpointStatus, publish, published, without_secrets
from app.adapters.model.congestion.window import Bounds
from app.adapters.model.providers import gates
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.gates import Gates, ProcessLimits, bounds
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.presets import PRESETS
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.queue.address import client_url
from app.config.models import ModelSettings, Provider
from app.domain.operator import Prompt
from app.embedded.valkey import EmbeddedValkey
from tests.integration.mock_llm import mock_llm

ANSWERED = RequestResult(Ended.ANSWERED, 1.0)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as found:
        yield found


@contextmanager
def asking(sharing: ProcessLimits, **spec: Any) -> Iterator[tuple[EndpointModel, ModelLoop]]:
    opened = Gates(sharing)
    model_loop = ModelLoop(opened, opened.close)
    # A request that is given up while the machine stands still goes on at the endpoint, above the
    # limits of its gate.
    patient = {"min_timeout_seconds": 60.0, "deadline_seconds": 60.0}
    fields = {"name": "mock", "retry_delay_seconds": 0.1, **patient, **spec}
    try:
        yield EndpointModel(OpenAIWire(ModelSpec(**fields)), model_loop), model_loop
    finally:
        model_loop.close()


def ask(model: EndpointModel, n: int, threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for each in [pool.submit(model.complete, [Prompt("", "hi", k)]) for k in range(n)]:
            each.result()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


async def settled(turns: int = 5) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def test_a_gate_admits_in_order_and_within_its_window() -> None:
    async def work() -> None:
        gate = AdaptiveGate("e", Bounds(1, 2, 2), Semaphore(lambda: 9))
        came: list[int] = []

        async def one(n: int) -> None:
            await gate.acquire()
            came.append(n)

        tasks = [asyncio.create_task(one(n)) for n in range(4)]
        await settled()
        assert came == [0, 1]
        assert (gate.status.in_flight, gate.status.waiting) == (2, 2)
        tasks[2].cancel()
        await settled()
        await gate.release(ANSWERED)
        await settled()
        assert came == [0, 1, 3]
        await asyncio.gather(*tasks, return_exceptions=True)

    run(work)


def test_places_are_what_the_windows_in_use_admit() -> None:
    async def work() -> None:
        opened = Gates(ProcessLimits(target_in_flight=6, max_in_flight=9))
        assert opened.places == 6  # nothing has been asked yet
        one, other = (opened(ModelSpec(name, base_url=f"http://{name}/v1")) for name in "ab")
        assert opened.places == 6
        await one.acquire()
        assert opened.places == 6
        await other.acquire()
        assert (one.places, other.places, opened.places) == (6, 6, 9)
        await opened.close()
        assert opened.places == 6

    run(work)


@pytest.mark.parametrize(
    ("of_process", "of_model", "places"), [(None, None, 32), (5, None, 5), (5, 3, 3), (5, 7, 5)]
)
def test_the_lower_limit_of_the_deployment_holds_whoever_gives_it(
    of_process: int | None, of_model: int | None, places: int
) -> None:
    async def work() -> None:
        opened = Gates(ProcessLimits(parallel_generations=of_process))
        hosted = PRESETS[Provider.OPENAI]  # its queue is not read
        gate = opened(ModelSpec("m", preset=hosted, parallel_generations=of_model))
        await gate.acquire()
        assert gate.places == places
        await opened.close()

    run(work)


def test_an_endpoint_that_is_no_longer_asked_has_no_places() -> None:
    async def work() -> None:
        now = [0.0]
        gate = AdaptiveGate("e", Bounds(1, 8, 8), Semaphore(lambda: 99), clock=lambda: now[0])
        assert gate.places == 0
        await gate.acquire()
        await gate.release(ANSWERED)
        assert gate.places == 8
        now[0] += endpoint_status.RECENT_SECONDS
        assert gate.places == 0

    run(work)


def test_an_endpoint_is_silent_from_the_first_request_or_last_answer_until_the_next_answer() -> (
    None
):
    failed = RequestResult(Ended.FAILED, 1.0)

    async def work() -> None:
        now = [0.0]
        gate = AdaptiveGate("e", Bounds(1, 8, 8), Semaphore(lambda: 99), clock=lambda: now[0])

        async def after(seconds: float, *results: RequestResult) -> float:
            now[0] += seconds
            for result in results:
                await gate.release(result)
            return gate.status.silent_seconds

        await gate.acquire()
        await gate.acquire()
        assert await after(5, failed) == 5.0
        await gate.acquire()
        assert await after(5, ANSWERED) == 0.0
        assert await after(5, failed) == 5.0  # nothing is in flight: the request is sent again
        assert await after(2) == 7.0
        await gate.acquire()
        assert await after(1, ANSWERED) == 0.0
        assert await after(9) == 0.0, "no request waits"
        await gate.acquire()
        await after(1, failed)
        now[0] += endpoint_status.RECENT_SECONDS + 1
        await gate.acquire()
        assert await after(1) == 1.0, "it was not asked for a minute"

    run(work)


def test_endpoints_share_the_slots_of_their_worker() -> None:
    async def work() -> None:
        places = Semaphore(lambda: 1)
        one, other = (AdaptiveGate(name, Bounds(1, 8, 8), places) for name in "ab")
        await one.acquire()
        waits = asyncio.create_task(other.acquire())
        await settled()
        assert not waits.done()
        await one.release(ANSWERED)
        await waits

    run(work)


def test_every_sample_of_a_request_takes_a_slot() -> None:
    async def work() -> None:
        gate = AdaptiveGate("e", Bounds(1, 8, 8), Semaphore(lambda: 99))
        await gate.acquire(5)
        waits = asyncio.create_task(gate.acquire(4))
        behind = asyncio.create_task(gate.acquire(1))
        await settled()
        assert (gate.status.in_flight, gate.status.waiting) == (5, 5)
        await gate.release(RequestResult(Ended.ANSWERED, 1.0, samples=5))
        await asyncio.gather(waits, behind)
        assert gate.status.in_flight == 5

    run(work)


def test_a_request_of_more_samples_than_the_window_is_admitted_alone() -> None:
    async def work() -> None:
        gate = AdaptiveGate("e", Bounds(1, 2, 2), Semaphore(lambda: 99))
        await gate.acquire(1)
        waits = asyncio.create_task(gate.acquire(4))
        await settled()
        assert not waits.done()
        await gate.release(ANSWERED)
        await waits

    run(work)


def test_a_repeated_request_goes_to_the_head_of_the_line() -> None:
    async def work() -> None:
        gate = AdaptiveGate("e", Bounds(1, 1, 1), Semaphore(lambda: 99))
        await gate.acquire()
        later = asyncio.create_task(gate.acquire())
        await settled()
        again = asyncio.create_task(gate.acquire(again=True))
        await settled()
        await gate.release(ANSWERED)
        await again
        assert not later.done()
        later.cancel()

    run(work)


def test_a_rate_limit_holds_every_request_until_its_retry_after_has_passed() -> None:
    async def work() -> None:
        now = 100.0
        gate = AdaptiveGate("e", Bounds(1, 8, 8), Semaphore(lambda: 99), clock=lambda: now)
        for _ in range(8):
            await gate.acquire()
        for _ in range(8):
            await gate.release(RequestResult(Ended.BUSY, 0.01, retry_after_seconds=0.2))
        waits = asyncio.create_task(gate.acquire())
        now = 100.15
        await asyncio.sleep(0.3)
        assert not waits.done()
        now = 100.2
        await waits
        await gate.close()

    run(work)


def test_a_refusal_among_many_answers_holds_no_other_request() -> None:
    async def work() -> None:
        gate = AdaptiveGate("e", Bounds(1, 8, 8), Semaphore(lambda: 99))
        for _ in range(8):
            await gate.acquire()
        await gate.release(RequestResult(Ended.BUSY, 0.01, retry_after_seconds=600.0))
        for _ in range(4):
            await gate.release(ANSWERED)
        await gate.acquire()

    run(work)


@pytest.mark.parametrize("ended", [Ended.BUSY, Ended.FAILED, Ended.TIMED_OUT])
def test_a_refusal_shrinks_the_window(ended: Ended) -> None:
    async def work() -> None:
        now = 100.0
        gate = AdaptiveGate("e", Bounds(1, 10, 10), Semaphore(lambda: 99), clock=lambda: now)
        for _ in range(10):
            await gate.acquire()
        await gate.release(RequestResult(ended, 0.1))
        assert gate.status.window < 10
        assert gate.status.recent == {ended.value: 1}

    run(work)


def test_a_worker_logs_a_window_that_moved_by_a_quarter(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        now = 100.0
        gate = AdaptiveGate("e", Bounds(1, 20, 20), Semaphore(lambda: 99), clock=lambda: now)
        for _ in range(20):
            await gate.acquire()
        for n in range(20):
            now = 100.0 + n
            await gate.release(RequestResult(Ended.BUSY, 0.1))

    run(work)
    assert "e: window " in caplog.text
    assert "was 20" in caplog.text
    assert len(caplog.records) == 1


@pytest.mark.parametrize("ended", [Ended.REFUSED, Ended.LEFT])
def test_results_unrelated_to_the_load_leave_the_window_unchanged(ended: Ended) -> None:
    async def work() -> None:
        gate = AdaptiveGate("e", Bounds(1, 4, 4), Semaphore(lambda: 99))
        for _ in range(50):
            await gate.acquire()
            await gate.release(RequestResult(ended, 0.1))
        assert gate.status.window == 4

    run(work)


def test_the_window_finds_the_capacity_of_an_endpoint() -> None:
    """SIMULATED: 503 above 12 requests in flight."""
    with (
        mock_llm("--latency", 0.2, "--max-num-queued-reqs", 12) as mock,
        asking(
            ProcessLimits(target_in_flight=40),
            base_url=mock.base_url,
            retries=10_000,
            deadline_seconds=280.0,
        ) as (model, opened),
    ):

        def refused() -> float:
            return mock.gauge("vllm:admission_rejections_total")

        # Wide bounds: what processors are left for answers shifts their times, and the closer
        # ones are held by the simulation of tests/unit/adapters/model/test_window.py.
        for rounds in itertools.count(1):
            before = refused()
            ask(model, 200, 40)
            gate = opened.gate(model_spec(model))
            assert isinstance(gate, AdaptiveGate)
            found = gate.status.window, refused() - before
            if 6 <= found[0] <= 24 and found[1] <= 100:  # now and then, not every other time
                break
            assert rounds < 10, found
        assert mock.gauge("vllm:request_success_total") == 200 * rounds


def model_spec(model: EndpointModel) -> ModelSpec:
    return model._spec


def test_the_window_follows_the_queue_inside_an_engine() -> None:
    """SIMULATED: 8 sequences run together; the others wait in the engine."""
    with (
        mock_llm("--latency", 0.25, "--max-num-seqs", 8) as mock,
        asking(ProcessLimits(), base_url=mock.base_url, target_in_flight=48) as (model, model_loop),
    ):
        ask(model, 1, 1)
        gate = model_loop.gate(model_spec(model))
        assert isinstance(gate, AdaptiveGate)
        over = threading.Event()

        def keep_asking(n: int) -> None:
            while not over.is_set():
                model.complete([Prompt("", "hi", n)])

        async def window() -> int:
            return gate.status.window

        inside: list[float] = []
        deadline = time.monotonic() + 120
        with ThreadPoolExecutor(48) as pool:
            asking_on = [pool.submit(keep_asking, n) for n in range(48)]
            try:
                while not follows(model_loop.run(window(), 60.0), inside):
                    assert time.monotonic() < deadline, (gate.status, inside)
                    time.sleep(0.05)
                    inside.append(mock.gauge("vllm:num_requests_waiting"))
            finally:
                over.set()
        for each in asking_on:
            each.result()


def follows(window: int, inside: list[float]) -> bool:
    """Returns whether a window and the last lengths of the queue inside fit eight places."""
    latest = sorted(inside[-40:])
    return window <= 16 and len(latest) == 40 and latest[20] <= 6


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a crowded machine a Redis that answers late is not one that is gone."""
    monkeypatch.setattr(gates, "connected", lambda url: Redis.from_url(url, socket_timeout=120.0))
    monkeypatch.setattr(endpoint_status, "_READ_SECONDS", 60.0)
    monkeypatch.setattr(endpoint_status, "KEPT_SECONDS", 600.0)


@pytest.mark.usefixtures("unhurried")
def test_parallel_generations_hold_for_all_workers_together(valkey: str) -> None:
    with mock_llm("--latency", 0.1) as mock:
        spec = {"base_url": mock.base_url, "parallel_generations": 5}
        sharing = ProcessLimits(redis_url=valkey)
        with (
            asking(sharing, **spec) as (one, _),
            asking(sharing, **spec) as (other, _),
        ):
            threads = [threading.Thread(target=ask, args=(m, 60, 20)) for m in (one, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert mock.gauge("evoq_mock_llm_peak_running") == 5


def test_without_redis_a_worker_still_makes_requests(tmp_path: Path) -> None:
    sharing = ProcessLimits(redis_url=f"unix://{tmp_path}/nothing.sock", parallel_generations=3)
    with (
        mock_llm("--latency", 0.01) as mock,
        asking(sharing, base_url=mock.base_url) as (model, _),
    ):
        ask(model, 10, 5)


@pytest.mark.usefixtures("unhurried")
def test_the_status_of_endpoints_is_published(valkey: str) -> None:
    with (
        mock_llm("--latency", 0.5) as mock,
        asking(ProcessLimits(redis_url=valkey), base_url=mock.base_url) as (model, _),
        ThreadPoolExecutor(6) as pool,
    ):
        over = threading.Event()

        def keep_asking(n: int) -> None:
            while not over.is_set():
                model.complete([Prompt("", "hi", n)])

        asked = [pool.submit(keep_asking, n) for n in range(6)]
        found: list[EndpointStatus] = []
        deadline = time.monotonic() + 60
        try:
            while not any(each.in_flight and each.recent for each in found):
                assert time.monotonic() < deadline, found
                time.sleep(0.2)
                found = [each for each in published(valkey) if each.endpoint == mock.base_url]
        finally:
            over.set()
        for request in asked:
            request.result()
    assert found[0].window == 32
    assert 1 <= found[0].in_flight <= 6
    assert found[0].recent["answered"] >= 1
    assert "in flight" in found[0].text


@pytest.mark.usefixtures("commands")
def test_the_statuses_of_several_workers_are_added_up() -> None:
    address = "redis://nowhere"

    async def work() -> None:
        client = connected(address)
        for worker in ("a", "b"):
            status = EndpointStatus("http://many/v1", 8, 16, 5, 1, {"busy": 2, "answered": 9})
            await publish(client, worker, [status])
        await client.aclose()

    run(work)
    [found] = [each for each in published(address) if each.endpoint == "http://many/v1"]
    assert (found.window, found.most, found.in_flight, found.workers) == (16, 32, 10, 2)
    assert found.recent == {"busy": 4, "answered": 18}
    assert found.text == (
        "10 of 16 in flight in 2 workers (at most 32), 2 waiting; last minute: 18 answered, 4 busy"
    )


def test_reading_the_status_fails_without_redis(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="does not answer"):
        published(f"unix://{tmp_path}/nothing.sock")


def test_a_closed_event_loop_is_started_again(valkey: str) -> None:
    with mock_llm("--latency", 0.01) as mock:
        sharing = ProcessLimits(redis_url=valkey, parallel_generations=2)
        with asking(sharing, base_url=mock.base_url) as (model, model_loop):
            ask(model, 4, 4)
            model_loop.close()
            ask(model, 4, 4)


def test_vllms_gauges_are_read_over_all_engines() -> None:
    text = (
        "# HELP vllm:num_requests_running x\n"
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 4.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 2.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0\n'
    )
    assert parse(text) == EngineQueue(7, 2)
    assert parse("process_cpu_seconds_total 1.0\n") is None
    assert parse("<html>") is None
    assert metrics_url("http://host:8000/v1") == "http://host:8000/metrics"
    assert metrics_url("http://host/llm/v1/") == "http://host/llm/metrics"


def test_settings_become_bounds() -> None:
    assert bounds(ModelSpec("m"), None) == Bounds(1, 32, 128)
    assert bounds(ModelSpec("m", max_in_flight=8), None) == Bounds(1, 8, 8)
    assert bounds(ModelSpec("m", target_in_flight=64), None) == Bounds(1, 64, 128)
    modal = ModelSpec("m", target_in_flight=18, max_in_flight=90)
    assert bounds(modal, None) == Bounds(1, 18, 90)
    assert bounds(ModelSpec("m", min_in_flight=50, target_in_flight=64), 10) == Bounds(10, 10, 10)
    [asked] = ModelSettings(model="m", parallel_generations=7, min_in_flight=2).models_of()
    assert (asked.parallel_generations, asked.min_in_flight) == (7, 2)


def test_the_limit_of_a_process_applies_whatever_a_model_allows() -> None:
    with (
        mock_llm("--latency", 0.1) as mock,
        asking(ProcessLimits(max_in_flight=3), base_url=mock.base_url) as (model, _),
    ):
        ask(model, 60, 20)
        assert mock.gauge("evoq_mock_llm_peak_running") == 3


def test_secrets_in_an_address_are_not_shown() -> None:
    assert without_secrets("https://me:key@host/v1") == "https://host/v1"
    assert PRESETS[Provider.VLLM].needs_key is False
    assert client_url("redis+socket://:pw@/run/a.sock?virtual_host=2") == (
        "unix://:pw@/run/a.sock?db=2"
    )
    assert client_url("redis://host:6379/0") == "redis://host:6379/0"
