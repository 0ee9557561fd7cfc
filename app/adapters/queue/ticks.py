"""Ticks of beat that a worker has handled, as keys in Redis that expire.

They show that planning goes on, and whether there is anything to plan.
"""

import redis

TICK_KEY, IDLE_KEY = "evoq:tick", "evoq:idle"
KEPT_SECONDS = 5
_READ_SECONDS = 1.0


def handled(client: redis.Redis, *, idle: bool) -> None:
    """Records that a tick was handled, and whether it found no run to plan for.

    Raises:
      RedisError: Redis cannot be reached.
    """
    client.set(TICK_KEY, 1, ex=KEPT_SECONDS)
    if idle:
        client.set(IDLE_KEY, 1, ex=KEPT_SECONDS)


def ticking(redis_url: str) -> bool:
    """Returns whether a tick was handled in the last `KEPT_SECONDS`.

    Raises:
      OSError: Redis does not answer.
    """
    try:
        with redis.Redis.from_url(
            redis_url, socket_timeout=_READ_SECONDS, socket_connect_timeout=_READ_SECONDS
        ) as client:
            return bool(client.exists(TICK_KEY))
    except redis.RedisError as error:
        raise OSError(f"the queue does not answer: {error}") from error
