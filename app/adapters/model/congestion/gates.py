"""The gates of a process: one an endpoint, and what they share."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from redis.asyncio import Redis
from redis.exceptions import RedisError

from app.adapters.model.congestion.adaptive import AdaptiveGate
from app.adapters.model.congestion.engine_queue import EngineQueueReader, Queue
from app.adapters.model.congestion.limiter import Limiter, connected
from app.adapters.model.congestion.semaphore import Semaphore
from app.adapters.model.congestion.status import publish, shown
from app.adapters.model.congestion.window import Bounds
from app.adapters.model.providers.chat import ModelSpec
from app.adapters.model.providers.vllm import IN_PROCESS

TOLD_SECONDS = 2.0
START = 32
"""Where a window begins that nobody gave a target."""
_UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Sharing:
    """What this process is told of its share.

    Attributes:
      redis_url: Where the deployment counts, and where standings are told; None: nowhere.
      max_in_flight: Requests of this process, over all endpoints; None: no such limit.
      target_in_flight: Where every window begins, whatever a model's settings say.
      parallel_generations: Requests of the deployment at one endpoint, whatever a model's settings
        say; the smaller number holds.
    """

    redis_url: str | None = None
    max_in_flight: int | None = None
    target_in_flight: int | None = None
    parallel_generations: int | None = None


class Gates:
    """Makes the gate of an endpoint, on the event loop that asks for it."""

    def __init__(self, sharing: Sharing, inside: Callable[[], Queue | None] = lambda: None) -> None:
        """Connects to nothing.

        Args:
          sharing: What this process is told of its share.
          inside: Returns the queue of the engine in this process; None where it has none.
        """
        self._sharing = sharing
        self._inside = inside
        self._worker = uuid4().hex[:12]
        self._shared: _Shared | None = None

    def __call__(self, spec: ModelSpec) -> AdaptiveGate:
        """Returns a new gate for a model's endpoint."""
        loop = asyncio.get_running_loop()
        if self._shared is None or self._shared.loop is not loop:
            self._shared = _Shared(loop, self._sharing, self._worker)
        most = _least(spec.parallel_generations, self._sharing.parallel_generations)
        told = self._sharing.target_in_flight
        own = spec.base_url == IN_PROCESS  # an endpoint that no other worker asks
        gauge = None if own or spec.preset.needs_key else EngineQueueReader(spec.base_url)
        gate = AdaptiveGate(
            shown(spec.base_url),
            bounds(spec if told is None else replace(spec, target_in_flight=told), most),
            self._shared.places,
            most=most,
            limiter=None if own else self._shared.limiter,
            look=self._look_inside if own else gauge.look if gauge else None,
        )
        self._shared.add(gate, gauge)
        return gate

    async def _look_inside(self) -> Queue | None:
        return self._inside()

    async def close(self) -> None:
        """Closes what the gates hold; called on their loop.  Idempotent."""
        if self._shared is not None:
            await self._shared.close()
            self._shared = None


class _Shared:
    """What the gates of one event loop have in common."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sharing: Sharing, worker: str) -> None:
        self.loop = loop
        self.places = Semaphore(lambda: sharing.max_in_flight or _UNLIMITED)
        address = sharing.redis_url
        self.limiter = Limiter(connected(address)) if address else None
        self._redis = connected(address) if address else None
        self._worker = worker
        self._gates: list[AdaptiveGate] = []
        self._gauges: list[EngineQueueReader] = []
        self._telling = loop.create_task(self._tell(self._redis)) if self._redis else None

    def add(self, gate: AdaptiveGate, gauge: EngineQueueReader | None) -> None:
        self._gates.append(gate)
        if gauge is not None:
            self._gauges.append(gauge)

    async def close(self) -> None:
        for gate in self._gates:
            await gate.close()
        for gauge in self._gauges:
            await gauge.close()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        for closing in (self.limiter, self._redis):
            if isinstance(closing, Limiter):
                await closing.close()
            elif closing is not None:
                await closing.aclose()

    async def _tell(self, client: Redis) -> None:
        """Tells where the endpoints stand, as long as anything moves."""
        while True:
            await asyncio.sleep(TOLD_SECONDS)
            found = [gate.standing for gate in self._gates]
            moving = [one for one in found if one.in_flight or one.waiting or one.recent]
            with contextlib.suppress(RedisError, OSError):  # told again soon, or of no use
                await publish(client, self._worker, moving)


def bounds(spec: ModelSpec, most: int | None) -> Bounds:
    """Returns what a model's window may be; never above what the deployment may ask for."""
    top = min(spec.max_in_flight, spec.max_in_flight if most is None else most)
    start = min(spec.target_in_flight or START, top)
    return Bounds(min(spec.min_in_flight, start), start, top)


def _least(*limits: int | None) -> int | None:
    given = [limit for limit in limits if limit is not None]
    return min(given, default=None)
