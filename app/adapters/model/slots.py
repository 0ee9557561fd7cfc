"""Slots of an endpoint, counted in Redis for all workers of a deployment.

A slot is held under a lease by the server's clock: what a killed worker held is free when its lease
ends.  Workers that found no slot stand in line, and the one that has waited longest is served and
woken first.  One Redis or Valkey, not a cluster: a script names a list by who waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from redis.asyncio import Redis

PATIENCE_SECONDS = 5.0
"""A worker in line that has not looked for so long is taken for dead."""
WOKEN_SECONDS = 10.0
"""How long a wake-up waits for its worker."""

_CLOCK = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
_TAKE = f"""
local held, line, seen = KEYS[1], KEYS[2], KEYS[3]
local worker, most, lease, patience = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local asking, wanted = tonumber(ARGV[5]), #ARGV - 5
{_CLOCK}
redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', now - patience)) do
    redis.call('ZREM', line, gone)
    redis.call('ZREM', seen, gone)
end
local free = most - redis.call('ZCARD', held)
local before = redis.call('ZRANK', line, worker)
local others = redis.call('ZCARD', line)
if before then others = others - 1 else before = others end
local granted = 0
if free > before then
    local share = math.max(1, math.floor(free / (others + 1)))
    granted = math.min(wanted, share, free - before)
end
for n = 1, granted do
    redis.call('ZADD', held, now + lease, ARGV[5 + n])
end
if granted >= asking then
    redis.call('ZREM', line, worker)
    redis.call('ZREM', seen, worker)
else
    if granted > 0 then redis.call('ZREM', line, worker) end
    redis.call('ZADD', line, 'NX', now, worker)
    redis.call('ZADD', seen, now, worker)
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, math.ceil(lease / 500)) end
local first = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
local ends = first[2] and (tonumber(first[2]) - now) or 0
return {{granted, ends}}
"""
"""Grants as many slots as are free for this worker, or gives it a place in the line.

Who was granted some and wants more goes to the end of the line.
"""
_GIVE = f"""
local held, line, wake = KEYS[1], KEYS[2], KEYS[4]
{_CLOCK}
local freed = redis.call('ZREM', held, unpack(ARGV, 2))
for _, worker in ipairs(redis.call('ZRANGE', line, 0, freed - 1)) do
    redis.call('LPUSH', wake .. worker, 1)
    redis.call('LTRIM', wake .. worker, 0, 0)
    redis.call('PEXPIRE', wake .. worker, ARGV[1])
end
return freed
"""
_KEEP = f"""
local held, lease = KEYS[1], ARGV[1]
{_CLOCK}
for n = 2, #ARGV do redis.call('ZADD', held, now + lease, ARGV[n]) end
redis.call('PEXPIRE', held, math.ceil(lease / 500))
return redis.call('ZCARD', held)
"""
"""Enters what is held again even where it was forgotten: the requests are under way."""
_LEAVE = """
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return redis.call('DEL', KEYS[4] .. ARGV[1])
"""


@dataclass(frozen=True, slots=True)
class Granted:
    """What came of asking for slots.

    Attributes:
      slots: How many of those asked for, the first ones first.
      ends_seconds: Until the lease that ends first; 0 where nobody holds any.
    """

    slots: int
    ends_seconds: float


class Slots:
    """The slots of one endpoint; every call is one script, and raises what redis-py raises."""

    def __init__(self, redis: Redis, endpoint: str, worker: str, lease_seconds: float) -> None:
        """Connects to nothing.

        Args:
          redis: The deployment's.
          endpoint: What is counted together; may hold anything, and is not shown in Redis.
          worker: Names this process among all that ever ask.
          lease_seconds: How long a slot is held without being kept.
        """
        root = f"evoq:slots:{{{sha256(endpoint.encode()).hexdigest()[:16]}}}"
        self._keys = (f"{root}:held", f"{root}:line", f"{root}:seen", f"{root}:wake:")
        self._redis = redis
        self._worker = worker
        self._lease_micros = int(lease_seconds * 1e6)
        self._take = redis.register_script(_TAKE)
        self._give = redis.register_script(_GIVE)
        self._keep = redis.register_script(_KEEP)
        self._leave = redis.register_script(_LEAVE)

    async def take(self, most: int, asking: int, names: Sequence[str]) -> Granted:
        """Asks for slots under these names.

        Args:
          most: How many all workers may hold together.
          asking: How many are wanted in all; with fewer granted, this worker stands in line.
          names: One a slot, each used once.
        """
        patience = int(PATIENCE_SECONDS * 1e6)
        told: list[str | int] = [self._worker, most, self._lease_micros, patience, asking, *names]
        granted, ends = await self._take(keys=self._keys[:3], args=told)
        return Granted(int(granted), int(ends) / 1e6)

    async def give(self, names: Sequence[str]) -> None:
        """Gives slots back, and wakes as many workers of the line."""
        told: list[str | int] = [int(WOKEN_SECONDS * 1000), *names]
        await self._give(keys=self._keys, args=told)

    async def keep(self, names: Sequence[str]) -> int:
        """Begins the leases of these slots anew; returns how many slots are held by anybody."""
        return int(await self._keep(keys=self._keys[:1], args=[self._lease_micros, *names]))

    async def woken(self, seconds: float) -> None:
        """Waits until a slot was given back for this worker, or so many seconds have passed."""
        await self._redis.blpop([f"{self._keys[3]}{self._worker}"], timeout=seconds)

    async def leave(self) -> None:
        """Leaves the line."""
        await self._leave(keys=self._keys, args=[self._worker])
