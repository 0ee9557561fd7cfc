"""At most so many completions in flight, over all workers of a deployment.

Held in one event loop.  While Redis does not answer, a worker keeps to as many slots as it held
when it last did, and to one if it held none: nothing waits for a Redis that is gone, and together
the workers stay near the limit.
"""

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.adapters.model.slots import Granted, Slots

_LOG = logging.getLogger(__name__)
LEASE_SECONDS = 30.0
LOOK_SECONDS = 1.0
"""Longest wait for a wake-up before a worker in line looks by itself."""
ALONE_SECONDS = 1.0
"""Between two attempts to reach a Redis that does not answer."""
_LOST = (RedisError, OSError, asyncio.TimeoutError)


def connected(redis_url: str) -> Redis:
    """Returns a client that gives up soon; it connects at first use, within one event loop."""
    return Redis.from_url(
        redis_url,
        socket_timeout=LOOK_SECONDS + 2.0,
        socket_connect_timeout=2.0,
        retry=Retry(NoBackoff(), 0),
    )


class Limiter:
    """Slots of every endpoint, as this process holds and awaits them."""

    def __init__(self, redis: Redis, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Asks for nothing yet.

        Args:
          redis: The deployment's; closed with this.
          lease_seconds: After how long the slots of a killed process are free.
        """
        self._redis = redis
        self._lease_seconds = lease_seconds
        self._worker = uuid4().hex
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def slot(self, endpoint: str, most: int) -> AsyncIterator[None]:
        """Waits for a slot of an endpoint, first come, first served, and holds it.

        Args:
          endpoint: What is counted together.
          most: How many the deployment may hold; >= 1.
        """
        name = await self.take(endpoint, most)
        try:
            yield
        finally:
            await self.give(endpoint, name)

    async def take(self, endpoint: str, most: int) -> str:
        """Waits for a slot as `slot` does; returns what to give back."""
        line = self._lines.get(endpoint)
        if line is None:
            slots = Slots(self._redis, endpoint, self._worker, self._lease_seconds)
            line = self._lines[endpoint] = _Line(slots, self._worker, self._lease_seconds)
        return await line.take(most)

    async def give(self, endpoint: str, name: str) -> None:
        """Gives a slot back; where Redis cannot be told, its lease ends by itself."""
        await self._lines[endpoint].give(name)

    def waiting(self, endpoint: str) -> int:
        """Returns how many requests of this process stand in line for an endpoint."""
        line = self._lines.get(endpoint)
        return line.waiting if line else 0

    async def close(self) -> None:
        """Ends what is going on in the background.  Idempotent."""
        for line in self._lines.values():
            await line.close()
        self._lines.clear()
        await self._redis.aclose()


class _Line:
    """Requests of this process that hold or await a slot of one endpoint."""

    def __init__(self, slots: Slots, worker: str, lease_seconds: float) -> None:
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._names = (f"{worker}/{n}" for n in itertools.count())
        self._held: set[str] = set()
        self._asking: deque[tuple[asyncio.Future[str], int]] = deque()
        self._owed: list[str] = []
        self._counted = 0
        self._alone: int | None = None
        self._freed = asyncio.Event()
        self._buyer: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._asking)

    async def take(self, most: int) -> str:
        """Waits for a slot; returns the name it is held under."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asking.append((future, most))
        if self._buyer is None or self._buyer.done():
            self._buyer = asyncio.create_task(self._buy())
            self._buyer.add_done_callback(self._ended)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                await self.give(future.result())
            raise

    async def give(self, name: str) -> None:
        """Gives a slot back; where Redis cannot be told, the lease ends by itself."""
        self._held.discard(name)
        self._freed.set()
        try:
            await self._slots.give([name])
        except _LOST as error:
            self._owed.append(name)
            self._lose(error)

    async def close(self) -> None:
        tasks = [task for task in (self._buyer, self._keeper) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._slots.leave()
        except _LOST as error:
            self._lose(error)

    def _ended(self, buyer: "asyncio.Task[None]") -> None:
        """Passes on what nobody foresaw, so that nobody waits for a buyer that is gone."""
        error = None if buyer.cancelled() else buyer.exception()
        while error is not None and self._asking:
            future, _ = self._asking.popleft()
            if not future.done():
                future.set_exception(error)

    async def _buy(self) -> None:
        """Takes slots for those who ask, in order, until nobody does."""
        in_line = False
        while self._wanted() or in_line:
            try:
                if not self._asking:
                    in_line = False
                    await self._slots.leave()
                    continue
                asking, granted = len(self._asking), await self._ask()
                in_line = granted.slots < asking
                if in_line:
                    look = min(LOOK_SECONDS, granted.ends_seconds or LOOK_SECONDS)
                    await self._slots.woken(max(0.01, look * random.uniform(0.9, 1)))
            except _LOST as error:
                self._lose(error)
                await self._manage_alone()

    def _wanted(self) -> int:
        """Returns how many still ask; those who gave up are forgotten."""
        self._asking = deque(one for one in self._asking if not one[0].done())
        return len(self._asking)

    async def _ask(self) -> Granted:
        most = self._asking[0][1]
        alike = sum(1 for _ in itertools.takewhile(lambda one: one[1] == most, self._asking))
        names = list(itertools.islice(self._names, min(alike, most)))
        if self._alone is not None:
            await self._tell()  # first, or more is granted than is free
        granted = await self._slots.take(most, len(self._asking), names)
        unwanted = [name for name in names[: granted.slots] if not self._hand(name)]
        if unwanted:
            await self._slots.give(unwanted)
        self._found()
        return granted

    def _hand(self, name: str) -> bool:
        """Hands a slot to the first who still asks; False where nobody does."""
        while self._asking:
            future, _ = self._asking.popleft()
            if not future.done():
                self._held.add(name)
                future.set_result(name)
                if self._keeper is None or self._keeper.done():
                    self._keeper = asyncio.create_task(self._keep())
                return True
        return False

    async def _keep(self) -> None:
        """Keeps the leases of what is held, also at a Redis that forgot them."""
        while self._held:
            await asyncio.sleep(self._lease_seconds / 3)
            if not self._held:
                return
            try:
                await self._slots.keep(sorted(self._held))
            except _LOST as error:
                self._lose(error)

    async def _tell(self) -> None:
        """Tells Redis what is held, and what was given back while it did not answer.

        Only who takes slots may do so: another would end the time alone between two hand-outs.
        """
        if self._held:
            await self._slots.keep(sorted(self._held))
        if owed := list(self._owed):
            await self._slots.give(owed)
            del self._owed[: len(owed)]
        self._found()

    def _lose(self, error: BaseException) -> None:
        if self._alone is None:
            self._alone = max(1, self._counted)
            _LOG.warning(
                "the queue does not answer (%s): until it does, this worker keeps %d completions "
                "in flight at most",
                error,
                self._alone,
            )

    def _found(self) -> None:
        self._counted = len(self._held)
        if self._alone is not None:
            self._alone = None
            _LOG.info("the queue answers again: slots are counted over all workers")

    async def _manage_alone(self) -> None:
        """Hands out what this worker may hold without Redis, for a moment."""
        ends = asyncio.get_running_loop().time() + ALONE_SECONDS * random.uniform(0.5, 1)
        while (left := ends - asyncio.get_running_loop().time()) > 0:
            while self._wanted() and len(self._held) < (self._alone or 1):
                self._hand(next(self._names))
            if not self._asking:
                return
            self._freed.clear()
            try:
                await asyncio.wait_for(self._freed.wait(), left)
            except TimeoutError:
                return
