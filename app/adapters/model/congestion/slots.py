"""A semaphore with leases in Redis: slots of one endpoint for all workers of a deployment.

A slot is held under a lease by the server's clock, so a killed worker's slots are free when their
leases end.  While Redis does not answer, a worker keeps to as many slots as it held when Redis last
answered, and to one slot if it held none: nothing waits for a Redis that is gone, and together the
workers stay near the limit.  One Redis or Valkey, not a cluster: a script names a key by a value.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Coroutine, Sequence
from hashlib import sha256
from typing import Any
from uuid import uuid4

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

LEASE_SECONDS = 30.0
POLL_SECONDS = 1.0
"""Longest wait for a wake-up before a waiting worker asks again."""
RESERVED_SECONDS = 5.0
"""How long a reservation lasts after its worker last asked; a dead worker's ends by itself."""
WAKE_UP_SECONDS = 10.0
"""How long a wake-up stays for a worker that does not wait yet."""
OFFLINE_SECONDS = 1.0
"""Between two attempts to reach a Redis that does not answer."""

log = logging.getLogger(__name__)
_LOST = (RedisError, OSError, asyncio.TimeoutError)

# Keys: `held`, a sorted set of slots by the end of their lease in microseconds; `next`, the worker
# for which slots are reserved; `wake`, a list with one wake-up for the worker that has waited
# longest (Redis serves blocked clients in the order in which they blocked); `wake:WORKER`, the same
# for the worker that `next` names.
_CLOCK = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
_WAKE = """
local function wake(list)
    redis.call('LPUSH', list, 1)
    redis.call('LTRIM', list, 0, 0)  -- one is enough: the worker that is served wakes the next
    redis.call('PEXPIRE', list, ARGV[1])
end
"""
_TAKE = f"""
-- Arguments: milliseconds of a wake-up, worker, limit, microseconds of a lease, milliseconds of a
-- reservation, and a name for each slot that the request needs.
-- Returns whether all of them were taken, and the microseconds until the first lease ends.
{_CLOCK}{_WAKE}
local held, next, worker, slots = KEYS[1], KEYS[2], ARGV[2], #ARGV - 5
redis.call('ZREMRANGEBYSCORE', held, '-inf', now)  -- leases that have ended
local free = ARGV[3] - redis.call('ZCARD', held)
local reserved = redis.call('GET', next)
local taken = 0
if not reserved or reserved == worker then
    if slots <= free then
        for n = 1, slots do redis.call('ZADD', held, now + ARGV[4], ARGV[5 + n]) end
        redis.call('PEXPIRE', held, math.ceil(ARGV[4] / 500))
        redis.call('DEL', next)
        if reserved or slots < free then wake(KEYS[3]) end
        taken = 1
    else  -- other requests wait until then: single slots do not starve a request for many
        redis.call('SET', next, worker, 'PX', ARGV[5])
    end
end
local first = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
return {{taken, first[2] and (tonumber(first[2]) - now) or 0}}
"""
_GIVE = f"""
-- Arguments: milliseconds of a wake-up, the worker whose reservation ends or '', and the names of
-- the slots that are given back.
{_WAKE}
redis.call('ZREM', KEYS[1], unpack(ARGV, 3))
local reserved = redis.call('GET', KEYS[2])
if reserved == ARGV[2] then
    redis.call('DEL', KEYS[2])
    reserved = false
end
wake(reserved and KEYS[3] .. ':' .. reserved or KEYS[3])
"""
_RENEW = f"""
-- Arguments: microseconds of a lease, and the names of the slots.  A slot that Redis has forgotten
-- is entered again, because its request is under way.
{_CLOCK}
for n = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[n]) end
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] / 500))
"""


def connected(redis_url: str) -> Redis:
    """Returns a client with short time-outs; it connects at first use, within one event loop."""
    return Redis.from_url(
        redis_url,
        socket_timeout=POLL_SECONDS + 2.0,
        socket_connect_timeout=2.0,
        retry=Retry(NoBackoff(), 0),
    )


class DeploymentSlots:
    """The slots of one endpoint as this process holds them and waits for them.

    Within one event loop.  Requests of one process are served in order, and only the first of them
    asks Redis, so that a process takes the slots of one request at a time.
    """

    def __init__(
        self, redis: Redis, endpoint: str, limit: int, *, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        """Connects to nothing.

        Args:
          redis: The deployment's; not closed here.
          endpoint: What is counted together; any text, of which Redis sees a digest.
          limit: Slots that the deployment may hold; >= 1.
          lease_seconds: Time after which the slots of a killed process are free.
        """
        root = f"evoq:slots:{{{sha256(endpoint.encode()).hexdigest()[:16]}}}"
        self._keys = [f"{root}:{name}" for name in ("held", "next", "wake")]
        self._redis = redis
        self._limit = limit
        self._lease_seconds = lease_seconds
        self._worker = uuid4().hex
        self._numbers = itertools.count()
        self._take_script, self._give_script, self._renew_script = map(
            redis.register_script, (_TAKE, _GIVE, _RENEW)
        )
        self._turn = asyncio.Lock()
        self._held: set[str] = set()
        self._counted = 0
        """Slots held when Redis last answered."""
        self._offline_limit: int | None = None
        """Slots that may be held while Redis does not answer; None while it does."""
        self._online_at = 0.0
        """Time of the next attempt to reach a Redis that does not answer."""
        self._owed: list[str] = []
        """Slots that were given back while Redis did not answer."""
        self._given_back = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self.waiting = 0
        """Requests of this process that wait."""

    async def take(self, slots: int = 1) -> list[str]:
        """Waits for slots, all at once; returns the names to give back.

        Args:
          slots: How many; where the limit is lower, the limit.
        """
        number = next(self._numbers)
        names = [f"{self._worker}/{number}/{n}" for n in range(min(slots, self._limit))]
        self.waiting += 1
        try:
            async with self._turn:
                await self._obtain(names)
                self._held.update(names)
        finally:
            self.waiting -= 1
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._keep_leases())
        return names

    async def give(self, names: Sequence[str]) -> None:
        """Gives slots back; where Redis does not answer, it learns of them later."""
        held = len(self._held)
        self._held.difference_update(names)
        self._given_back.set()
        try:
            await self._give(names)
        except _LOST as error:
            self._owed += names
            self._go_offline(error, held)

    async def close(self) -> None:
        """Ends the renewal of leases.  Idempotent."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _obtain(self, names: Sequence[str]) -> None:
        """Waits until Redis grants the slots, or until this worker may hold them without Redis."""
        wait_seconds = 0.0
        loop = asyncio.get_running_loop()
        while True:
            try:
                if self._offline_limit is not None:
                    left = self._online_at - loop.time()
                    if left > 0 and await self._fit_offline(len(names), left):
                        return
                    await self._report()
                if wait_seconds:
                    wake = self._keys[2]
                    await self._redis.blpop(
                        [f"{wake}:{self._worker}", wake],
                        timeout=max(0.01, wait_seconds * random.uniform(0.9, 1)),
                    )
                taken, lease_seconds = await self._ask(names)
                if taken:
                    self._counted = len(self._held) + len(names)
                    return
                wait_seconds = min(POLL_SECONDS, lease_seconds or POLL_SECONDS)
            except asyncio.CancelledError:
                # Redis may have granted or reserved the slots before the cancellation.
                if self._offline_limit is None:
                    await self._quietly(self._give(names, self._worker))
                raise
            except _LOST as error:
                self._go_offline(error)
                self._online_at = loop.time() + OFFLINE_SECONDS * random.uniform(0.5, 1)

    async def _ask(self, names: Sequence[str]) -> tuple[bool, float]:
        """Returns whether Redis granted the slots, and the seconds until the first lease ends."""
        arguments: list[str | int] = [
            int(WAKE_UP_SECONDS * 1000),
            self._worker,
            self._limit,
            int(self._lease_seconds * 1e6),
            int(RESERVED_SECONDS * 1000),
            *names,
        ]
        taken, ends = await self._take_script(keys=self._keys, args=arguments)
        return bool(taken), int(ends) / 1e6

    async def _give(self, names: Sequence[str], reserved_for: str = "") -> None:
        arguments = [str(int(WAKE_UP_SECONDS * 1000)), reserved_for, *names]
        await self._give_script(keys=self._keys, args=arguments)

    async def _renew(self) -> None:
        arguments = [str(int(self._lease_seconds * 1e6)), *sorted(self._held)]
        await self._renew_script(keys=self._keys[:1], args=arguments)

    async def _keep_leases(self) -> None:
        while self._held:
            await asyncio.sleep(self._lease_seconds / 3)
            if self._held:
                await self._quietly(self._renew())

    async def _quietly(self, command: Coroutine[Any, Any, None]) -> None:
        """Runs a command that may be lost: leases and reservations end by themselves."""
        try:
            await command
        except _LOST as error:
            self._go_offline(error)

    async def _report(self) -> None:
        """Tells Redis first what is held, or more is granted than is free; then what was given."""
        if self._held:
            await self._renew()
        if owed := list(self._owed):
            await self._give(owed)
            del self._owed[: len(owed)]
        self._offline_limit, self._counted = None, len(self._held)
        log.info("the queue answers again: slots are counted over all workers")

    def _go_offline(self, error: BaseException, held: int = 0) -> None:
        """Goes on without Redis, with no more slots than are held, or were before a `give` failed.

        Slots that were held earlier may be another worker's by now.
        """
        if self._offline_limit is None:
            self._offline_limit = max(1, min(self._counted, max(held, len(self._held))))
            log.warning(
                "the queue does not answer (%s): until it does, this worker keeps %d completions "
                "in flight at most",
                error,
                self._offline_limit,
            )

    async def _fit_offline(self, slots: int, seconds: float) -> bool:
        """Waits so many seconds until this worker may hold more slots; returns whether it may."""
        try:
            async with asyncio.timeout(seconds):
                while self._held and len(self._held) + slots > (self._offline_limit or 1):
                    self._given_back.clear()
                    await self._given_back.wait()
        except TimeoutError:
            return False
        return True
