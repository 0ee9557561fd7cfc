"""The gate of an endpoint whose window follows what its answers tell."""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable

from app.adapters.model.congestion.engine_queue import Queue
from app.adapters.model.congestion.gate import Ended, Outcome
from app.adapters.model.congestion.limiter import Limiter
from app.adapters.model.congestion.retry_after import RetryAfter
from app.adapters.model.congestion.semaphore import Semaphore
from app.adapters.model.congestion.status import RECENT_SECONDS, Standing
from app.adapters.model.congestion.window import Bounds, Window

LOOK_SECONDS = 1.0
"""Between two looks at an engine's own queue, while anything is in flight."""
BLIND_SECONDS = 60.0
"""Before an endpoint that told no queue is asked for it again."""
TOLD_SHARE = 0.25
"""A window that moved by so much since it was last told is told of."""

_LOG = logging.getLogger(__name__)
_REFUSED = (Ended.BUSY, Ended.FAILED, Ended.TIMED_OUT)


class AdaptiveGate:
    """Admits requests to one endpoint, first come, first served; within one event loop."""

    def __init__(
        self,
        endpoint: str,
        bounds: Bounds,
        worker: Semaphore,
        *,
        most: int | None = None,
        limiter: Limiter | None = None,
        look: Callable[[], Awaitable[Queue | None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the window; asks nobody yet.

        Args:
          endpoint: Its name, without secrets.
          bounds: Of the window.
          worker: Semaphore of this process, over all endpoints.
          most: Requests of the whole deployment; None: no such limit.
          limiter: Who counts those.
          look: Returns the queue inside the engine; None where it has none.
          clock: Seconds; never goes back.
        """
        self._endpoint = endpoint
        self._worker = worker
        self._most = most
        self._limiter = limiter if most is not None else None
        self._look = look
        self._clock = clock
        self._window = Window.opened(bounds, clock())
        self._hold = RetryAfter()
        self._held: asyncio.TimerHandle | None = None
        self._told = bounds.start
        self._places = Semaphore(self._open)
        self._sent = 0
        self._slots: list[str] = []
        self._recent: deque[tuple[float, Ended]] = deque()
        self._looking: asyncio.Task[None] | None = None
        self._blind_until = 0.0

    async def acquire(self, samples: int = 1, *, again: bool = False) -> None:
        """Waits for a place in the window, one of this worker, and one of the deployment."""
        await self._places.take(samples, first=again)
        try:
            await self._worker.take(samples, first=again)
            try:
                if self._limiter is not None and self._most is not None:
                    slots = await self._limiter.take(self._endpoint, self._most, samples)
                    self._slots.extend(slots)
            except BaseException:
                self._worker.give(samples)
                raise
        except BaseException:
            self._places.give(samples)
            raise
        self._sent += samples
        self._hold = self._hold.asked()
        if self._look is not None and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._watch(self._look))

    async def release(self, outcome: Outcome) -> None:
        """Hands the places back, and sets the window by what the request told."""
        now, samples = self._clock(), outcome.samples
        told = now, now - outcome.latency_seconds, self._sent, samples
        self._recent.append((now, outcome.ended))
        if outcome.ended is Ended.ANSWERED:
            self._window = self._window.served(*told)
            self._hold = self._hold.served(told[1])
        elif outcome.ended in _REFUSED:
            self._window = self._window.refused(*told)
            alone = self._sent // samples
            self._hold = self._hold.refused(now, outcome.retry_after_seconds, alone)
        self._sent -= samples
        self._worker.give(samples)
        self._places.give(samples)
        self._tell()
        if self._limiter is not None:
            slots, self._slots = self._slots[:samples], self._slots[samples:]
            await self._limiter.give(self._endpoint, slots)

    @property
    def standing(self) -> Standing:
        """Where the endpoint stands now."""
        self._forget()
        window = self._window
        return Standing(
            self._endpoint,
            window.open,
            window.bounds.most,
            self._sent,
            self._places.waiting + self._places.taken - self._sent,
            round(window.failing, 3),
            dict(Counter(ended.value for _, ended in self._recent)),
        )

    async def close(self) -> None:
        """Stops looking at the engine.  Idempotent."""
        if self._held is not None:
            self._held.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _open(self) -> int:
        """Returns how many places there are now; none while the endpoint asks to be left alone."""
        left = self._hold.until - self._clock()
        if left <= 0:
            return self._window.open
        if self._held is None:
            self._held = asyncio.get_running_loop().call_later(left, self._over)
        return 0

    def _over(self) -> None:
        self._held = None
        self._places.admit()

    async def _watch(self, look: Callable[[], Awaitable[Queue | None]]) -> None:
        """Looks at the engine's queue for as long as anything is in flight."""
        while self._sent and self._clock() >= self._blind_until:
            queue = await look()
            now = self._clock()
            if queue is None:
                self._blind_until = now + BLIND_SECONDS
                return
            self._window = self._window.queued(now, queue.running, queue.waiting)
            self._places.admit()
            self._tell()
            await asyncio.sleep(LOOK_SECONDS)

    def _tell(self) -> None:
        size = int(self._window.size)
        if abs(size - self._told) <= TOLD_SHARE * self._told:
            return
        level = logging.WARNING if size < self._told else logging.INFO
        told = "%s: window %d, was %d: %s"
        _LOG.log(level, told, self._endpoint, size, self._told, self.standing.text)
        self._told = size

    def _forget(self) -> None:
        since = self._clock() - RECENT_SECONDS
        while self._recent and self._recent[0][0] < since:
            self._recent.popleft()
