"""The gate of an endpoint: when a request may be sent, and what its result says of the load."""

import asyncio
import enum
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from app.adapters.model.congestion.engine_queue import EngineQueue
from app.adapters.model.congestion.replies import Replies
from app.adapters.model.congestion.retry_after import RetryAfter
from app.adapters.model.congestion.slots import DeploymentSlots
from app.adapters.model.congestion.status import RECENT_SECONDS, EndpointStatus
from app.adapters.model.congestion.window import Bounds, Window

QUEUE_POLL_SECONDS = 1.0
"""Between two looks at an engine's own queue, while anything is in flight."""
QUEUE_ABSENT_SECONDS = 60.0
"""Before an endpoint that showed no queue is asked for it again."""
LOGGED_SHARE = 0.25
"""A window that has moved by so much since the last log line is logged."""

log = logging.getLogger(__name__)


class Ended(enum.StrEnum):
    """How one request ended, as far as the endpoint's load goes."""

    ANSWERED = "answered"
    BUSY = "busy"
    """Status 429 or 503: the endpoint is up and has too much to do."""
    FAILED = "failed"
    """Another 5xx, a broken connection, or a body that is no completion."""
    TIMED_OUT = "timed_out"
    REFUSED = "refused"
    """Another 4xx, which concerns the request and not the load."""
    LEFT = "left"
    """The caller was cancelled."""


_OVERLOADED = (Ended.BUSY, Ended.FAILED, Ended.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The result of one request.

    Attributes:
      latency_seconds: From sending to the result.
      retry_after_seconds: The endpoint's `Retry-After`; 0.0 without one.
      samples: Completions that the request asked for; each of them took a slot.
    """

    ended: Ended
    latency_seconds: float = 0.0
    retry_after_seconds: float = 0.0
    samples: int = 1


class RequestGate(Protocol):
    """Admits requests to one endpoint.

    Both methods run on one event loop, so an implementation needs no lock.  Every `acquire` that
    returns is followed by one `release`; an `acquire` that is cancelled or raises is not.
    """

    @property
    def limit(self) -> int:
        """How many requests may be in flight now; for any thread."""
        ...

    @property
    def replies(self) -> Replies:
        """The attempts under way, which are reported here and limit nothing."""
        ...

    async def acquire(self, samples: int = 1, *, again: bool = False) -> None:
        """Waits until one more request may be sent.

        Args:
          samples: Completions that the request asks for; its result repeats the number.
          again: Whether the request was sent before: it then goes to the head of the line.

        Raises:
          Unavailable: The gate cannot be reached.
        """
        ...

    async def release(self, result: RequestResult) -> None:
        """Gives the slots of a request back, with its result."""
        ...


class Semaphore:
    """A first-in, first-out semaphore of which a request may take several slots.

    A request for more slots than there are is admitted alone, so that it does not wait forever.
    Within one event loop.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        """Admits nothing yet.

        Args:
          limit: Returns how many slots there are at this moment; with 0 nothing is admitted.
        """
        self._limit = limit
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self.taken = 0

    @property
    def waiting(self) -> int:
        """Slots that requests wait for."""
        return sum(slots for admitted, slots in self._waiting if not admitted.done())

    async def take(self, slots: int, *, first: bool = False) -> None:
        """Waits until so many slots are free, and takes them.

        Args:
          slots: >= 1.
          first: Whether the request is admitted before those that wait already.
        """
        if self._fits(slots) and (first or not self._waiting):
            self.taken += slots
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = admitted, slots
        self._waiting.insert(0 if first else len(self._waiting), request)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.give(slots)
            elif request in self._waiting:
                self._waiting.remove(request)
                self.admit()
            raise

    def give(self, slots: int) -> None:
        """Gives slots back, and admits what now fits."""
        self.taken -= slots
        self.admit()

    def admit(self) -> None:
        """Admits the requests that now fit; called where the limit may have risen."""
        while self._waiting and self._fits(self._waiting[0][1]):
            admitted, slots = self._waiting.popleft()
            if not admitted.done():
                self.taken += slots
                admitted.set_result(None)

    def _fits(self, slots: int) -> bool:
        limit = self._limit()
        return limit > 0 and (self.taken + slots <= limit or not self.taken)


class FixedGate:
    """Admits a fixed number of requests at once, whatever their results."""

    def __init__(self, slots: int) -> None:
        self.limit = slots
        self.replies = Replies()
        self._semaphore = Semaphore(lambda: slots)

    async def acquire(self, samples: int = 1, *, again: bool = False) -> None:
        await self._semaphore.take(samples, first=again)

    async def release(self, result: RequestResult) -> None:
        self._semaphore.give(result.samples)


class AdaptiveGate:
    """Admits as many requests as the window of the endpoint allows, first in, first out."""

    def __init__(
        self,
        endpoint: str,
        bounds: Bounds,
        worker: Semaphore,
        *,
        deployment: DeploymentSlots | None = None,
        engine_queue: Callable[[], Awaitable[EngineQueue | None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the window; sends nothing.

        Args:
          endpoint: Address without secrets.
          bounds: Of the window.
          worker: Slots of this process, over all endpoints.
          deployment: Slots of the whole deployment at the endpoint; None: no such limit.
          engine_queue: Reads the queue inside the engine; None where the endpoint shows none.
          clock: Seconds; never goes back.
        """
        self._endpoint = endpoint
        self._worker = worker
        self._deployment = deployment
        self._engine_queue = engine_queue
        self._clock = clock
        self.replies = Replies(clock)
        self._window = Window.opened(bounds)
        self._logged_size = bounds.start
        self._retry_after = RetryAfter()
        self._resuming: asyncio.TimerHandle | None = None
        self._semaphore = Semaphore(self._open)
        self._in_flight = 0
        self._used_at = -math.inf
        self._silent_since: float | None = None
        self._leases: list[str] = []
        self._recent: deque[tuple[float, Ended]] = deque()
        self._watching: asyncio.Task[None] | None = None
        self._watched_again_at = 0.0

    async def acquire(self, samples: int = 1, *, again: bool = False) -> None:
        """Waits for slots of the window, of this process, and of the deployment."""
        with ExitStack() as undo:
            await self._semaphore.take(samples, first=again)
            undo.callback(self._semaphore.give, samples)
            await self._worker.take(samples, first=again)
            undo.callback(self._worker.give, samples)
            if self._deployment is not None:
                # Another task may replace `_leases` during this wait.
                leases = await self._deployment.take(samples)
                self._leases.extend(leases)
            undo.pop_all()
        now = self._clock()
        if self._silent_since is None or now - self._used_at > RECENT_SECONDS:
            self._silent_since = now
        self._in_flight += samples
        self._used_at = now
        self._retry_after = self._retry_after.after_sending()
        if self._engine_queue and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._watch(self._engine_queue))

    async def release(self, result: RequestResult) -> None:
        """Gives the slots back, and adjusts the window to the result."""
        now, samples = self._clock(), result.samples
        sent_at = now - result.latency_seconds
        self._used_at = now
        self._recent.append((now, result.ended))
        if result.ended is Ended.ANSWERED:
            self._window = self._window.served(now, sent_at, self._in_flight, samples)
            self._retry_after = self._retry_after.served(sent_at)
        elif result.ended in _OVERLOADED:
            self._window = self._window.refused(now, sent_at, self._in_flight, samples)
            self._retry_after = self._retry_after.refused(
                now, result.retry_after_seconds, self._in_flight // samples
            )
        self._in_flight -= samples
        if result.ended not in _OVERLOADED:
            self._silent_since = now if self._in_flight else None
        self._worker.give(samples)
        self._semaphore.give(samples)
        self._log_change()
        if self._deployment is not None:
            leases, self._leases = self._leases[:samples], self._leases[samples:]
            await self._deployment.give(leases)

    @property
    def limit(self) -> int:
        """What the window admits; 0 before a `Retry-After` has passed."""
        return self._window.open if self._retry_after.until <= self._clock() else 0

    @property
    def places(self) -> int:
        """Requests that the window admits; 0 where none was sent for a minute.  For any thread."""
        return self._window.open if self._clock() - self._used_at < RECENT_SECONDS else 0

    @property
    def status(self) -> EndpointStatus:
        """The endpoint's state now, and the results of the last minute."""
        oldest = self._clock() - RECENT_SECONDS
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()
        window, writing = self._window, self.replies.writing
        unanswered = 0.0 if self._silent_since is None else self._clock() - self._silent_since
        silent = min(unanswered, writing.silent_seconds) if writing.replies else unanswered
        return EndpointStatus(
            self._endpoint,
            window.open,
            window.bounds.most,
            self._in_flight,
            self._semaphore.waiting + self._semaphore.taken - self._in_flight,
            dict(Counter(ended.value for _, ended in self._recent)),
            silent_seconds=round(silent, 1),
            unanswered_seconds=round(unanswered, 1),
            writing=writing.replies,
            longest_seconds=round(writing.longest_seconds, 1),
            tokens_per_second=round(writing.tokens_per_second, 1),
        )

    async def close(self) -> None:
        """Stops reading the engine's queue.  Idempotent."""
        if self._resuming is not None:
            self._resuming.cancel()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    def _open(self) -> int:
        """Returns how many slots there are now; none before a `Retry-After` has passed."""
        left = self._retry_after.until - self._clock()
        if left <= 0:
            return self.limit
        if self._resuming is None:
            self._resuming = asyncio.get_running_loop().call_later(left, self._resume)
        return 0

    def _resume(self) -> None:
        self._resuming = None
        self._semaphore.admit()

    async def _watch(self, engine_queue: Callable[[], Awaitable[EngineQueue | None]]) -> None:
        """Reads the engine's queue for as long as anything is in flight."""
        while self._in_flight and self._clock() >= self._watched_again_at:
            queue = await engine_queue()
            now = self._clock()
            if queue is None:
                self._watched_again_at = now + QUEUE_ABSENT_SECONDS
                return
            self._window = self._window.queued(now, queue.running, queue.waiting, self._in_flight)
            self._semaphore.admit()
            self._log_change()
            await asyncio.sleep(QUEUE_POLL_SECONDS)

    def _log_change(self) -> None:
        size, logged = int(self._window.size), self._logged_size
        if abs(size - logged) <= LOGGED_SHARE * logged:
            return
        level = logging.WARNING if size < logged else logging.INFO
        message = "%s: window %d, was %d: %s"
        log.log(level, message, self._endpoint, size, logged, self.status.text)
        self._logged_size = size
