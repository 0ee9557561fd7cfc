"""A model of continuous batching: sequences share one accelerator, and wait where it is full.

Modelled on what vLLM shows from outside: up to `max_num_seqs` sequences run together, a step makes
one token for each of them and takes longer the more there are, and who comes while all places are
taken waits in order of arrival.  A request beyond `max_num_queued_reqs` in flight is refused.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

_ROUNDING_TOKENS = 1e-6  # a sequence that lacks less than this is done: times are floats


class Timer(Protocol):
    """A call that is going to happen."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time, and calls at a time; an asyncio event loop is one."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer: ...


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast the simulated accelerator is.

    Attributes:
      tokens_per_second: Of one sequence alone; None: a sequence takes its head time and no more.
      slowdown: By how much of a lone step's time each further sequence lengthens a step.
      max_num_seqs: Sequences that run together.
      max_num_queued_reqs: Sequences in flight, running and waiting, above which a request is
        refused; None: all are taken.
    """

    tokens_per_second: float | None = None
    slowdown: float = 0.02
    max_num_seqs: int = 256
    max_num_queued_reqs: int | None = None


@dataclass(slots=True, eq=False)
class Generation:
    """One sequence on its way through the batch.

    Attributes:
      head_seconds: From its start to its first token.
      tokens: How many it makes after that.
      done: Called once, when it has them all; never after `withdraw`.
      started: When it left the queue, by the batch's clock.
    """

    head_seconds: float
    tokens: float
    done: Callable[[], None]
    started: float = 0.0
    running: bool = False
    ended: bool = False
    timer: Timer | None = None


@dataclass(slots=True)
class Batch:
    """The accelerator.  Not for several threads."""

    speed: Speed
    clock: Clock
    running: int = 0
    _waiting: deque[Generation] = field(default_factory=deque)
    _decoding: list[tuple[float, int, Generation]] = field(default_factory=list)
    _order: "itertools.count[int]" = field(default_factory=itertools.count)
    _sharing: int = 0  # sequences past their first token
    _made: float = 0.0  # tokens a sequence would have made that was there from the beginning
    _seen: float = 0.0  # when `_made` was brought up to date
    _next: Timer | None = None
    _withdrawn: int = 0  # of those in `_waiting`

    @property
    def waiting(self) -> int:
        return len(self._waiting) - self._withdrawn

    def accepts(self, n: int) -> bool:
        """Returns whether so many sequences more would be within what may be in flight."""
        most = self.speed.max_num_queued_reqs
        return most is None or self.running + self.waiting + n <= most

    def start(self, generations: Sequence[Generation]) -> None:
        """Takes sequences in; they run at once where there is room."""
        self._waiting.extend(generations)
        self._fill()

    def withdraw(self, generation: Generation) -> None:
        """Ends a sequence whose client is gone, and gives its place to the next.  Idempotent."""
        if generation.ended:
            return
        if not generation.running:
            generation.ended = True
            self._withdrawn += 1
            return
        decoding = generation.timer is None
        if generation.timer is not None:
            generation.timer.cancel()
        if decoding:
            self._catch_up()
            self._sharing -= 1
        self._end(generation)
        self._fill()
        self._arm()

    def _end(self, generation: Generation) -> None:
        generation.ended = True
        self.running -= 1

    def _fill(self) -> None:
        while self._waiting and self.running < self.speed.max_num_seqs:
            generation = self._waiting.popleft()
            if generation.ended:
                self._withdrawn -= 1
                continue
            generation.running = True
            self.running += 1
            generation.started = self.clock.time()
            first = generation.started + generation.head_seconds
            generation.timer = self.clock.call_at(first, self._decode, generation)

    def _decode(self, generation: Generation) -> None:
        """Lets a sequence whose first token is due share the steps."""
        generation.timer = None
        if self.speed.tokens_per_second is None:
            self._end(generation)
            self._fill()
            generation.done()
            return
        self._catch_up()
        self._sharing += 1
        entry = (self._made + generation.tokens, next(self._order), generation)
        heapq.heappush(self._decoding, entry)
        self._arm()

    def _rate(self) -> float:
        """Returns tokens per second of each sequence, as many as share the steps now."""
        assert self.speed.tokens_per_second is not None
        return self.speed.tokens_per_second / (1.0 + self.speed.slowdown * (self._sharing - 1))

    def _catch_up(self) -> None:
        now = self.clock.time()
        if self._sharing:
            self._made += (now - self._seen) * self._rate()
        self._seen = now

    def _arm(self) -> None:
        """Sets the one timer to when the next sequence will have its tokens."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._decoding and self._decoding[0][2].ended:
            heapq.heappop(self._decoding)
        if self._decoding:
            left = max(0.0, self._decoding[0][0] - self._made)
            self._next = self.clock.call_at(self.clock.time() + left / self._rate(), self._finish)

    def _finish(self) -> None:
        self._next = None
        self._catch_up()
        finished: list[Generation] = []
        while self._decoding and self._decoding[0][0] <= self._made + _ROUNDING_TOKENS:
            generation = heapq.heappop(self._decoding)[2]
            if not generation.ended:
                self._sharing -= 1
                self._end(generation)
                finished.append(generation)
        self._fill()
        self._arm()
        for generation in finished:
            generation.done()
