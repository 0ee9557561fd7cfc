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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.adapters.model.congestion.slots import Granted, Slots

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
        names = await self.take(endpoint, most)
        try:
            yield
        finally:
            await self.give(endpoint, names)

    async def take(self, endpoint: str, most: int, wanted: int = 1) -> list[str]:
        """Waits for slots as `slot` does, all at once; returns what to give back.

        Args:
          endpoint: What is counted together.
          most: How many the deployment may hold; >= 1.
          wanted: How many; with more than `most`, for all there are.
        """
        line = self._lines.get(endpoint)
        if line is None:
            slots = Slots(self._redis, endpoint, self._worker, self._lease_seconds)
            line = self._lines[endpoint] = _Line(slots, self._worker, self._lease_seconds)
        return await line.take(most, min(wanted, most))

    async def give(self, endpoint: str, names: Sequence[str]) -> None:
        """Gives slots back; where Redis cannot be told, their leases end by themselves."""
        await self._lines[endpoint].give(names)

    def waiting(self, endpoint: str) -> int:
        """Returns how many slots this process stands in line for at an endpoint."""
        line = self._lines.get(endpoint)
        return line.waiting if line else 0

    async def close(self) -> None:
        """Ends what is going on in the background.  Idempotent."""
        for line in self._lines.values():
            await line.close()
        self._lines.clear()
        await self._redis.aclose()


@dataclass(frozen=True, slots=True)
class _Asked:
    """Slots that a request waits for, all of them or none.

    Attributes:
      most: How many the deployment may hold.
      wanted: From 1 to `most`.
    """

    granted: "asyncio.Future[list[str]]"
    most: int
    wanted: int


class _Line:
    """Requests of this process that hold or await a slot of one endpoint."""

    def __init__(self, slots: Slots, worker: str, lease_seconds: float) -> None:
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._names = (f"{worker}/{n}" for n in itertools.count())
        self._held: set[str] = set()
        self._asking: deque[_Asked] = deque()
        self._owed: list[str] = []
        self._counted = 0
        self._alone: int | None = None
        self._freed = asyncio.Event()
        self._buyer: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return sum(one.wanted for one in self._asking)

    async def take(self, most: int, wanted: int) -> list[str]:
        """Waits for slots; returns the names they are held under."""
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._asking.append(_Asked(future, most, wanted))
        if self._buyer is None or self._buyer.done():
            self._buyer = asyncio.create_task(self._buy())
            self._buyer.add_done_callback(self._ended)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                await self.give(future.result())
            raise

    async def give(self, names: Sequence[str]) -> None:
        """Gives slots back; where Redis cannot be told, the leases end by themselves."""
        held = len(self._held)
        self._held.difference_update(names)
        self._freed.set()
        try:
            await self._slots.give(names)
        except _LOST as error:
            self._owed += names
            self._lose(error, held)

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
            future = self._asking.popleft().granted
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
                asking, granted = self.waiting, await self._ask()
                in_line = granted.slots < asking
                if in_line:
                    look = min(LOOK_SECONDS, granted.ends_seconds or LOOK_SECONDS)
                    await self._slots.woken(max(0.01, look * random.uniform(0.9, 1)))
            except _LOST as error:
                self._lose(error)
                await self._manage_alone()

    def _wanted(self) -> int:
        """Returns how many still ask; those who gave up are forgotten."""
        self._asking = deque(one for one in self._asking if not one.granted.done())
        return len(self._asking)

    async def _ask(self) -> Granted:
        first = self._asking[0]
        alike = itertools.takewhile(lambda one: one.most == first.most, self._asking)
        wanted = min(sum(one.wanted for one in alike), first.most)
        names = list(itertools.islice(self._names, wanted))
        if self._alone is not None:
            await self._tell()  # first, or more is granted than is free
        granted = await self._slots.take(first.most, self.waiting, names, first.wanted)
        unwanted = self._hand(names[: granted.slots])
        if unwanted:
            await self._slots.give(unwanted)
        self._found()
        return granted

    def _hand(self, names: list[str]) -> list[str]:
        """Hands slots to the first who ask, as far as there are enough; returns what is left."""
        while self._wanted() and len(names) >= self._asking[0].wanted:
            one = self._asking.popleft()
            own, names = names[: one.wanted], names[one.wanted :]
            self._held.update(own)
            one.granted.set_result(own)
            if self._keeper is None or self._keeper.done():
                self._keeper = asyncio.create_task(self._keep())
        return names

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

    def _lose(self, error: BaseException, held: int = 0) -> None:
        """Goes on alone, with no more than is held, or was before slots were given back in vain.

        What was held earlier may be others' by now.
        """
        if self._alone is None:
            self._alone = max(1, min(self._counted, max(held, len(self._held))))
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
            while self._wanted() and self._fits_alone(self._asking[0].wanted):
                self._hand(list(itertools.islice(self._names, self._asking[0].wanted)))
            if not self._asking:
                return
            self._freed.clear()
            try:
                await asyncio.wait_for(self._freed.wait(), left)
            except TimeoutError:
                return

    def _fits_alone(self, wanted: int) -> bool:
        return not self._held or len(self._held) + wanted <= (self._alone or 1)
