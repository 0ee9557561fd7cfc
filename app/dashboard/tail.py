"""Tails: one reader a run, whose frames all viewers of the run share.

A viewer has a position and nothing else.  While it keeps up it gets the frames that the tail holds;
one that falls behind reads what it missed from the ledger, at its own pace, so that it loses
nothing, holds nothing in memory and delays nobody.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from itertools import islice

from app.dashboard.frames import encode
from app.domain.events import Event
from app.ports.protocols import Store, Unavailable
from app.reports.course import Course, offered

PAGE = 1000
POLL_SECONDS = 0.25
HELD = 2000
"""Frames that a tail holds for viewers that keep up."""
UNUSED_SECONDS = 30.0
"""Time without a viewer after which a tail reads no more until the next one comes."""
MOST_TAILS = 64
"""Runs whose folded state is kept; that of the least recently viewed is folded anew."""

_LOG = logging.getLogger(__name__)


class Tail:
    """The newest frames of one run, and its course.

    Attributes:
      course: Everything up to `seq`.
      seq: The last event read; 0 before the first.
      fault: Why the ledger cannot be read now; "" while it can.
    """

    def __init__(self, store: Store, run: int) -> None:
        """Reads nothing before it is used."""
        self.run = run
        self.course = Course()
        self.seq = 0
        self.fault = ""
        self._store = store
        self._held: list[str] = []
        self._used_at = 0.0
        self._complete = asyncio.Event()
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    def use(self) -> None:
        """Keeps the tail reading for a while longer."""
        self._used_at = time.monotonic()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_on())

    async def complete(self) -> None:
        """Waits until the course holds what the ledger held `POLL_SECONDS` ago, or later.

        Raises:
          Unavailable: The ledger cannot be read.
        """
        if self._reader is None or self._reader.done():
            self._complete.clear()
        self.use()
        await self._complete.wait()
        if self.fault:
            raise Unavailable(self.fault)

    async def frames(self, after: int) -> AsyncIterator[str]:
        """Yields the frame of every event with `seq` > `after`, in order, for ever."""
        while True:
            self.use()
            first = self.seq - len(self._held) + 1
            if after + 1 < first or after > self.seq:
                batch = await asyncio.to_thread(self._missed, after)
            else:
                batch = list(islice(self._held, after + 1 - first, None))
            for frame in batch:
                yield frame
            after += len(batch)
            if not batch and after >= self.seq:
                await self._news()

    async def _news(self) -> None:
        """Waits for the next frames, for half the time after which an unused tail ends at most."""
        try:
            await asyncio.wait_for(self._changed.wait(), UNUSED_SECONDS / 2)
        except TimeoutError:
            return

    async def _read_on(self) -> None:
        while time.monotonic() - self._used_at < UNUSED_SECONDS:
            try:
                page, frames, metrics = await asyncio.to_thread(self._news_of, self.seq)
            except Unavailable as error:
                _LOG.warning("run %d: %s", self.run, error)
                self.fault = str(error)
                self._complete.set()
                await asyncio.sleep(4 * POLL_SECONDS)
                continue
            self.fault = ""
            if page:
                self._take(page, frames, metrics)
            if len(page) < PAGE:
                self._complete.set()
                await asyncio.sleep(POLL_SECONDS)
            else:
                await asyncio.sleep(0)
        self._reader = None

    def _take(
        self, page: list[Event], frames: list[str], metrics: Mapping[int, Mapping[str, float]]
    ) -> None:
        self.course.add(page, metrics)
        self._held += frames
        del self._held[:-HELD]
        self.seq = page[-1].seq
        self._changed.set()
        self._changed = asyncio.Event()

    def _missed(self, after: int) -> list[str]:
        """Reads frames that are not held any more."""
        with self._store.begin() as tx:
            page = tx.events.read(self.run, after=after, limit=PAGE)
        return [encode(self.run, event) for event in page]

    def _news_of(self, after: int) -> tuple[list[Event], list[str], dict[int, dict[str, float]]]:
        """Reads the next events and the metrics of what they offer; makes their frames."""
        with self._store.begin() as tx:
            page = tx.events.read(self.run, after=after, limit=PAGE)
            ordinals = offered(page)
            metrics = tx.history.metrics(self.run, ordinals) if ordinals else {}
        return page, [encode(self.run, event) for event in page], metrics


class Tails:
    """The tails of the runs that are viewed."""

    def __init__(self, store: Store) -> None:
        """Opens none."""
        self._store = store
        self._tails: dict[int, Tail] = {}

    def of(self, run: int) -> Tail:
        """Returns the tail of a run, and keeps it reading."""
        tail = self._tails.pop(run, None) or Tail(self._store, run)
        self._tails[run] = tail
        tail.use()
        if len(self._tails) > MOST_TAILS:
            del self._tails[next(iter(self._tails))]
        return tail

    async def course(self, run: int) -> Course:
        """Returns the course of a run; see `Tail.complete`."""
        tail = self.of(run)
        await tail.complete()
        return tail.course
