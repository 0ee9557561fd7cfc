"""What Redis shows of the queue: ticks of beat that a worker has handled, and lengths of queues.

Ticks are keys that expire.  They show that planning goes on, and whether there is anything to plan.
"""

from collections.abc import Sequence

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
    return bool(_answers(redis_url, [("EXISTS", TICK_KEY)])[0])


def lengths(redis_url: str, queues: Sequence[str]) -> dict[str, int]:
    """Returns how many messages wait in each queue; those that a worker holds are not counted.

    Raises:
      OSError: Redis does not answer.
    """
    found = _answers(redis_url, [("LLEN", queue) for queue in queues])
    return dict(zip(queues, found, strict=True))


def _answers(redis_url: str, commands: Sequence[tuple[str, str]]) -> list[int]:
    try:
        with redis.Redis.from_url(
            redis_url, socket_timeout=_READ_SECONDS, socket_connect_timeout=_READ_SECONDS
        ) as client:
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute())
    except redis.RedisError as error:
        raise OSError(f"the queue does not answer: {error}") from error
