"""The status of endpoints as each worker sees it: in Redis for a while, for people to read.

Nothing is decided by it, and it is not written to the ledger.
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
class EndpointStatus:
    """One endpoint as one worker sees it, or several workers together.

    Attributes:
      window: Requests that may be in flight at once.
      most: Upper bound of the window.
      in_flight: Requests sent and not answered.
      waiting: Requests that wait for the window, or for a slot of the deployment.
      recent: Number of results of the last minute, by `Ended`.
      workers: Number of workers in these figures.
      silent_seconds: Time since the last answer or token, or since the first request that waits for
        one; 0.0 where none waits.
      unanswered_seconds: The same without the tokens of replies in progress.
      writing: Replies in progress.
      longest_seconds: Time since the oldest of their requests was sent.
      tokens_per_second: Of all replies.
    """

    endpoint: str
    window: int
    most: int
    in_flight: int
    waiting: int
    recent: dict[str, int] = field(default_factory=dict)
    workers: int = 1
    silent_seconds: float = 0.0
    unanswered_seconds: float = 0.0
    writing: int = 0
    longest_seconds: float = 0.0
    tokens_per_second: float = 0.0

    @property
    def progress(self) -> str:
        """The replies in progress, in words; "" without one."""
        if not self.writing:
            return ""
        replies = "1 reply" if self.writing == 1 else f"{self.writing} replies"
        longest = f"{', the longest' if self.writing > 1 else ''} for {self.longest_seconds:.0f} s"
        return f"{replies} in progress{longest}, {self.tokens_per_second:.0f} tokens/s"

    @property
    def prompts(self) -> str:
        """The requests sent and not answered, in words."""
        return "1 prompt" if self.in_flight == 1 else f"{self.in_flight} prompts"

    @property
    def text(self) -> str:
        """The status in a line."""
        results = ", ".join(f"{n} {ended}" for ended, n in sorted(self.recent.items())) or "nothing"
        workers = f" in {self.workers} workers" if self.workers > 1 else ""
        progress = f"; {self.progress}" if self.writing else ""
        return (
            f"{self.in_flight} of {self.window} in flight{workers} (at most {self.most}), "
            f"{self.waiting} waiting{progress}; last minute: {results}"
        )

    def __add__(self, other: "EndpointStatus") -> "EndpointStatus":
        return EndpointStatus(
            self.endpoint,
            self.window + other.window,
            self.most + other.most,
            self.in_flight + other.in_flight,
            self.waiting + other.waiting,
            dict(Counter(self.recent) + Counter(other.recent)),
            self.workers + other.workers,
            min(self.silent_seconds, other.silent_seconds),
            min(self.unanswered_seconds, other.unanswered_seconds),
            self.writing + other.writing,
            max(self.longest_seconds, other.longest_seconds),
            round(self.tokens_per_second + other.tokens_per_second, 1),
        )


def without_secrets(base_url: str) -> str:
    """Returns the address of an endpoint without user and password."""
    scheme, separator, rest = base_url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


async def publish(client: Redis, worker: str, statuses: Iterable[EndpointStatus]) -> None:
    """Writes the status of a worker's endpoints for `KEPT_SECONDS`.

    Raises:
      RedisError: Redis cannot be reached.
    """
    milliseconds = int(KEPT_SECONDS * 1000)
    for number, status in enumerate(statuses):
        text = json.dumps(asdict(status))
        await client.set(f"{_PREFIX}{worker}:{number}", text, px=milliseconds)


def published(redis_url: str) -> list[EndpointStatus]:
    """Returns the status of each endpoint, all workers together, sorted by endpoint.

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
    endpoints: dict[str, EndpointStatus] = {}
    for text in texts:
        status = EndpointStatus(**json.loads(text))
        known = endpoints.get(status.endpoint)
        endpoints[status.endpoint] = known + status if known else status
    return [endpoints[endpoint] for endpoint in sorted(endpoints)]
