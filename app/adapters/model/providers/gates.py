"""The gates of a process: one for each endpoint, and what they share."""

import asyncio
import contextlib
from collections.abc import Callable
from uuid import uuid4

from redis.asyncio import Redis
from redis.exceptions import RedisError

from app.adapters.model.congestion.engine_queue import EngineQueue, metrics_url, parse
from app.adapters.model.congestion.gate import AdaptiveGate, Semaphore
from app.adapters.model.congestion.slots import DeploymentSlots, connected
from app.adapters.model.congestion.status import publish, without_secrets
from app.adapters.model.congestion.window import Bounds
from app.adapters.model.providers.http_client import http_client
from app.adapters.model.providers.refusals import BROKEN
from app.adapters.model.providers.spec import (
    IN_PROCESS,
    START,
    ModelSpec,
    ProcessLimits,
    least,
)

PUBLISH_SECONDS = 1.0
_UNLIMITED = 1_000_000
_METRICS_SECONDS = 2.0


class EngineQueueReader:
    """Reads the queue of one endpoint; within one event loop."""

    def __init__(self, base_url: str) -> None:
        self._url = metrics_url(base_url)
        self._client = http_client(self._url)

    async def read(self) -> EngineQueue | None:
        """Returns the queue; None where the endpoint has no such metrics or does not answer."""
        try:
            async with asyncio.timeout(_METRICS_SECONDS):
                response = await self._client.get(self._url, follow_redirects=False)
            return parse(response.text) if response.status_code == 200 else None
        except (*BROKEN, OSError):
            return None

    async def close(self) -> None:
        await self._client.aclose()


class Gates:
    """Makes the gate of an endpoint, on the event loop of the caller; the gates share slots."""

    def __init__(
        self, limits: ProcessLimits, engine_queue: Callable[[], EngineQueue | None] = lambda: None
    ) -> None:
        """Connects to nothing.

        Args:
          limits: Of this process.
          engine_queue: Returns the queue of the engine in this process; None where it has none.
        """
        self._limits = limits
        self._engine_queue = engine_queue
        self._worker = uuid4().hex[:12]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gates: list[AdaptiveGate] = []

    def __call__(self, spec: ModelSpec) -> AdaptiveGate:
        """Returns a new gate for a model's endpoint."""
        if self._loop is not asyncio.get_running_loop():
            self._begin()
        limits, in_process = self._limits, spec.base_url == IN_PROCESS
        most = least(spec.parallel_generations, limits.parallel_generations)
        read, deployment = self._read_engine if in_process else None, None
        # A hosted endpoint has no metrics.
        if not in_process and not spec.preset.needs_key:
            reader = EngineQueueReader(spec.base_url)
            read = reader.read
            self._closing.append(reader)
        if not in_process and most is not None and self._redis is not None:
            deployment = DeploymentSlots(self._redis, without_secrets(spec.base_url), most)
            self._closing.append(deployment)
        gate = AdaptiveGate(
            without_secrets(spec.base_url),
            bounds(spec, most, limits.target_in_flight),
            self._slots,
            deployment=deployment,
            engine_queue=read,
        )
        self._gates.append(gate)
        return gate

    @property
    def places(self) -> int:
        """Requests that may be in flight now, or would be at one endpoint that is asked next.

        For any thread.
        """
        limits = self._limits
        used = sum(gate.places for gate in self._gates)
        return min(used, limits.max_in_flight or used) or limits.opening

    async def close(self) -> None:
        """Closes what the gates hold; called on their loop.  Idempotent."""
        if self._loop is None:
            return
        gates, self._gates, self._loop = self._gates, [], None
        for closing in (*gates, *self._closing):
            await closing.close()
        if self._redis is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
            await self._redis.aclose()

    def _begin(self) -> None:
        """Begins on the running loop, without a gate."""
        limits = self._limits
        self._loop = asyncio.get_running_loop()
        self._gates = []
        self._closing: list[EngineQueueReader | DeploymentSlots] = []
        self._slots = Semaphore(lambda: limits.max_in_flight or _UNLIMITED)
        self._redis = connected(limits.redis_url) if limits.redis_url else None
        if self._redis is not None:
            self._publishing = self._loop.create_task(self._publish(self._redis))

    async def _read_engine(self) -> EngineQueue | None:
        return self._engine_queue()

    async def _publish(self, client: Redis) -> None:
        """Publishes the status of the endpoints that are in use."""
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            statuses = [gate.status for gate in self._gates]
            in_use = [each for each in statuses if each.in_flight or each.waiting or each.recent]
            # A failed attempt is dropped, because the next one follows soon.
            with contextlib.suppress(RedisError, OSError):
                await publish(client, self._worker, in_use)


def bounds(spec: ModelSpec, most: int | None, target: int | None = None) -> Bounds:
    """Returns the bounds of a model's window.

    Args:
      spec: The model.
      most: Requests of the whole deployment at the endpoint, which no window exceeds; None: no
        limit.
      target: Size at which the window begins, in place of the model's own.
    """
    top = least(spec.max_in_flight, most) or spec.max_in_flight
    start = min(target or spec.target_in_flight or START, top)
    return Bounds(min(spec.min_in_flight, start), start, top)
