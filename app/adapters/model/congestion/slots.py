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
local held, line, seen, needs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local worker, most, lease, patience = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local asking, least, wanted = tonumber(ARGV[5]), tonumber(ARGV[6]), #ARGV - 6
{_CLOCK}
redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', now - patience)) do
    redis.call('ZREM', line, gone)
    redis.call('ZREM', seen, gone)
    redis.call('HDEL', needs, gone)
end
local free = most - redis.call('ZCARD', held)
local rank = redis.call('ZRANK', line, worker)
local others = redis.call('ZCARD', line)
local ahead = redis.call('ZRANGE', line, 0, rank and rank - 1 or -1)
if rank then others = others - 1 end
if rank == 0 then ahead = {{}} end
local before = 0
for _, other in ipairs(ahead) do
    before = before + tonumber(redis.call('HGET', needs, other) or 1)
end
local share = math.max(least, math.floor(free / (others + 1)))
local granted = math.min(wanted, share, free - before)
if granted < least then granted = 0 end
for n = 1, granted do
    redis.call('ZADD', held, now + lease, ARGV[6 + n])
end
if granted >= asking then
    redis.call('ZREM', line, worker)
    redis.call('ZREM', seen, worker)
    redis.call('HDEL', needs, worker)
else
    redis.call('HSET', needs, worker, least)
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

Fewer than the first of its requests needs are of no use to it and are not granted; who stands ahead
is left as many as it needs.  Who was granted some and wants more goes to the end of the line.
"""
_GIVE = f"""
local held, line, wake = KEYS[1], KEYS[2], KEYS[5]
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
redis.call('HDEL', KEYS[4], ARGV[1])
return redis.call('DEL', KEYS[5] .. ARGV[1])
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
        self._keys = tuple(f"{root}:{name}" for name in ("held", "line", "seen", "needs", "wake:"))
        self._redis = redis
        self._worker = worker
        self._lease_micros = int(lease_seconds * 1e6)
        self._take = redis.register_script(_TAKE)
        self._give = redis.register_script(_GIVE)
        self._keep = redis.register_script(_KEEP)
        self._leave = redis.register_script(_LEAVE)

    async def take(self, most: int, asking: int, names: Sequence[str], least: int = 1) -> Granted:
        """Asks for slots under these names.

        Args:
          most: How many all workers may hold together.
          asking: How many are wanted in all; with fewer granted, this worker stands in line.
          names: One a slot, each used once.
          least: Fewer are not granted; from 1 to `most`.
        """
        patience = int(PATIENCE_SECONDS * 1e6)
        told: list[str | int] = [self._worker, most, self._lease_micros, patience, asking, least]
        granted, ends = await self._take(keys=self._keys[:4], args=[*told, *names])
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
        await self._redis.blpop([f"{self._keys[4]}{self._worker}"], timeout=seconds)

    async def leave(self) -> None:
        """Leaves the line."""
        await self._leave(keys=self._keys, args=[self._worker])
