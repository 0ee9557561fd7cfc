"""Where the endpoints stand, as each worker sees them: in Redis for a while, for people to read.

Nothing decides by it, and the ledger is not for it.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import redis
from redis.asyncio import Redis

KEPT_SECONDS = 10.0
RECENT_SECONDS = 60.0
_PREFIX = "evoq:model:"
_READ_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Standing:
    """One endpoint as one worker sees it, or several workers together.

    Attributes:
      window: How many requests it is given at once.
      most: What the window may grow to.
      in_flight: Requests sent and not answered.
      waiting: Requests that wait for the window, or for a slot of the deployment.
      failing: Largest share of refusals that was found not to come from its load.
      recent: How the requests of the last minute ended, by `Ended`.
      workers: How many are in these numbers.
    """

    endpoint: str
    window: int
    most: int
    in_flight: int
    waiting: int
    failing: float = 0.0
    recent: dict[str, int] = field(default_factory=dict)
    workers: int = 1

    @property
    def text(self) -> str:
        """The standing in a line."""
        told = ", ".join(f"{n} {how}" for how, n in sorted(self.recent.items())) or "nothing"
        beside = f", {self.failing:.0%} fail at any load" if self.failing else ""
        spread = f" in {self.workers} workers" if self.workers > 1 else ""
        return (
            f"{self.in_flight} of {self.window} in flight{spread} (at most {self.most}), "
            f"{self.waiting} waiting{beside}; last minute: {told}"
        )


def shown(base_url: str) -> str:
    """Returns an endpoint's address without what may be secret in it."""
    scheme, _, rest = base_url.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]


async def publish(client: Redis, worker: str, standings: Iterable[Standing]) -> None:
    """Tells where endpoints stand, for `KEPT_SECONDS`.

    Raises:
      RedisError: It could not be told.
    """
    milliseconds = int(KEPT_SECONDS * 1000)
    for place, one in enumerate(standings):
        await client.set(f"{_PREFIX}{worker}:{place}", json.dumps(asdict(one)), px=milliseconds)


def published(redis_url: str) -> list[Standing]:
    """Returns where each endpoint stands, all workers together, by endpoint.

    Raises:
      OSError: Redis does not answer.
    """
    try:
        with redis.Redis.from_url(
            redis_url, socket_timeout=_READ_SECONDS, socket_connect_timeout=_READ_SECONDS
        ) as client:
            keys = list(client.scan_iter(match=f"{_PREFIX}*", count=1000))
            texts = [text for text in client.mget(keys) if text] if keys else []
    except redis.RedisError as error:
        raise OSError(f"the queue does not answer: {error}") from error
    return _together(Standing(**json.loads(text)) for text in texts)


def _together(standings: Iterable[Standing]) -> list[Standing]:
    found: dict[str, Standing] = {}
    for one in standings:
        before = found.get(one.endpoint)
        if before is None:
            found[one.endpoint] = one
            continue
        found[one.endpoint] = Standing(
            one.endpoint,
            before.window + one.window,
            before.most + one.most,
            before.in_flight + one.in_flight,
            before.waiting + one.waiting,
            max(before.failing, one.failing),
            dict(Counter(before.recent) + Counter(one.recent)),
            before.workers + one.workers,
        )
    return [found[endpoint] for endpoint in sorted(found)]
