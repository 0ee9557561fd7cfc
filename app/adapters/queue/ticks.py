"""What Redis shows: ticks of beat that a worker has handled, lengths of queues, its own losses.

Ticks are keys that expire.  They show that planning goes on, and whether there is anything to plan.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis

TICK_KEY, IDLE_KEY = "evoq:tick", "evoq:idle"
KEPT_SECONDS, IDLE_KEPT_SECONDS = 5, 8
_READ_SECONDS = 1.0


def handled(client: redis.Redis, *, idle: bool) -> None:
    """Records that a tick was handled, and whether it found no run to plan for.

    Raises:
      RedisError: Redis cannot be reached.
    """
    kept = IDLE_KEPT_SECONDS if idle else KEPT_SECONDS
    client.set(TICK_KEY, 1, ex=kept)
    if idle:
        client.set(IDLE_KEY, 1, ex=kept)


def ticking(redis_url: str) -> bool:
    """Returns whether a tick was handled lately.

    It is kept for `KEPT_SECONDS`; for `IDLE_KEPT_SECONDS` where it found no run.

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


@dataclass(frozen=True, slots=True)
class Losses:
    """When Redis may have lost the messages that it held.

    Attributes:
      uptime_seconds: Since it was started.
      flushes: How often it has been emptied by a command since then.
    """

    uptime_seconds: float
    flushes: int


def losses(redis_url: str) -> Losses:
    """Returns when Redis may have lost its messages.

    Raises:
      OSError: Redis does not answer, or does not let this user see its statistics.
    """
    with _reading(redis_url) as client:
        commands = client.info("commandstats")
        flushes = [commands.get(f"cmdstat_{name}", {}) for name in ("flushall", "flushdb")]
        uptime = client.info("server")["uptime_in_seconds"]
        return Losses(uptime, sum(each.get("calls", 0) for each in flushes))


def _answers(redis_url: str, commands: Sequence[tuple[str, str]]) -> list[int]:
    with _reading(redis_url) as client:
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(pipeline.execute())


@contextmanager
def _reading(redis_url: str) -> Iterator[Any]:
    try:
        with redis.Redis.from_url(
            redis_url, socket_timeout=_READ_SECONDS, socket_connect_timeout=_READ_SECONDS
        ) as client:
            yield client
    except redis.RedisError as error:
        raise OSError(f"the queue does not answer: {error}") from error
