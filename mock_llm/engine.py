"""A model of an inference engine: continuous batching and prefix caching.

The behaviour is that of vLLM as its clients see it: up to `max_num_seqs` sequences run together, a
step makes one token for each of them and takes longer the more there are, and further sequences
wait in order of arrival.  A request beyond `max_num_queued_reqs` in flight is refused.
"""

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

CHARS_A_TOKEN = 4
"""The assumed length of a token; a tokenizer's average is close."""
_BLOCK_TOKENS = 16
_BLOCK_CHARS = CHARS_A_TOKEN * _BLOCK_TOKENS
_ROUNDING_TOKENS = 1e-6
"""A sequence that lacks less than this is done, because times are floats."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Tells the time and schedules calls; an asyncio event loop is one."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer: ...


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast the simulated accelerator is.

    Attributes:
      tokens_per_second: The speed of a sequence that runs alone; None: a sequence takes its head
        time and no more.
      slowdown: How much each further sequence lengthens a step, as a share of the step's time with
        one sequence.
      max_num_seqs: Sequences that run together.
      max_num_queued_reqs: Sequences in flight, running and waiting, above which a request is
        refused; None: all are taken.
    """

    tokens_per_second: float | None = None
    slowdown: float = 0.02
    max_num_seqs: int = 256
    max_num_queued_reqs: int | None = None


@dataclass(slots=True, eq=False)
class BatchedSequence:
    """One sequence on its way through the batch.

    Attributes:
      head_seconds: Time from its start to its first token.
      tokens: The number of tokens after that.
      done: Called once, when the last token is made; never after `withdraw`.
      started: When the sequence left the queue, by the batch's clock.
      complete_at: Tokens of the batch's imaginary sequence at its end; None before its first token.
    """

    head_seconds: float
    tokens: float
    done: Callable[[], None]
    started: float = 0.0
    complete_at: float | None = None
    running: bool = False
    ended: bool = False
    timer: Timer | None = None


@dataclass(slots=True)
class Batch:
    """The batch of the simulated accelerator.  Not for several threads."""

    speed: Speed
    clock: Clock
    running: int = 0
    _waiting: deque[BatchedSequence] = field(default_factory=deque)
    _decoding: list[tuple[float, int, BatchedSequence]] = field(default_factory=list)
    _order: "itertools.count[int]" = field(default_factory=itertools.count)
    _sharing: int = 0
    """Number of sequences past their first token."""
    _made: float = 0.0
    """Tokens of an imaginary sequence that has run from the beginning."""
    _seen: float = 0.0
    """Time of the last update of `_made`."""
    _next: Timer | None = None
    _withdrawn: int = 0
    """Number of withdrawn sequences that are still in `_waiting`."""

    @property
    def waiting(self) -> int:
        return len(self._waiting) - self._withdrawn

    def accepts(self, n: int) -> bool:
        """Returns whether `n` further sequences are within the limit of sequences in flight."""
        limit = self.speed.max_num_queued_reqs
        return limit is None or self.running + self.waiting + n <= limit

    def start(self, sequences: Sequence[BatchedSequence]) -> None:
        """Enqueues sequences; they run at once while fewer than `max_num_seqs` do."""
        self._waiting.extend(sequences)
        self._fill()

    def withdraw(self, sequence: BatchedSequence) -> None:
        """Ends a sequence whose client is gone, so that the next one can run.  Idempotent."""
        if sequence.ended:
            return
        if not sequence.running:
            sequence.ended = True
            self._withdrawn += 1
            return
        decoding = sequence.timer is None
        if sequence.timer is not None:
            sequence.timer.cancel()
        if decoding:
            self._catch_up()
            self._sharing -= 1
        self._end(sequence)
        self._fill()
        self._arm()

    def share(self, sequence: BatchedSequence) -> float:
        """Returns the share of a sequence's tokens that are made: 0 to 1."""
        if sequence.ended or sequence.complete_at is None:
            return float(sequence.ended)
        self._catch_up()
        return 1.0 - max(0.0, sequence.complete_at - self._made) / max(1.0, sequence.tokens)

    def _end(self, sequence: BatchedSequence) -> None:
        sequence.ended = True
        self.running -= 1

    def _fill(self) -> None:
        while self._waiting and self.running < self.speed.max_num_seqs:
            sequence = self._waiting.popleft()
            if sequence.ended:
                self._withdrawn -= 1
                continue
            sequence.running = True
            self.running += 1
            sequence.started = self.clock.time()
            first = sequence.started + sequence.head_seconds
            sequence.timer = self.clock.call_at(first, self._decode, sequence)

    def _decode(self, sequence: BatchedSequence) -> None:
        """Adds a sequence whose first token is due to the batch's steps."""
        sequence.timer = None
        if self.speed.tokens_per_second is None:
            self._end(sequence)
            self._fill()
            sequence.done()
            return
        self._catch_up()
        self._sharing += 1
        sequence.complete_at = self._made + sequence.tokens
        entry = (sequence.complete_at, next(self._order), sequence)
        heapq.heappush(self._decoding, entry)
        self._arm()

    def _rate(self) -> float:
        """Returns the current tokens per second of each sequence in the steps."""
        assert self.speed.tokens_per_second is not None
        return self.speed.tokens_per_second / (1.0 + self.speed.slowdown * (self._sharing - 1))

    def _catch_up(self) -> None:
        now = self.clock.time()
        if self._sharing:
            self._made += (now - self._seen) * self._rate()
        self._seen = now

    def _arm(self) -> None:
        """Sets the timer to the time at which the next sequence will be complete."""
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
        finished: list[BatchedSequence] = []
        while self._decoding and self._decoding[0][0] <= self._made + _ROUNDING_TOKENS:
            sequence = heapq.heappop(self._decoding)[2]
            if not sequence.ended:
                self._sharing -= 1
                self._end(sequence)
                finished.append(sequence)
        self._fill()
        self._arm()
        for sequence in finished:
            sequence.done()


class PrefixCache:
    """The leading blocks of earlier prompts; the least recently used blocks are evicted first.

    Whole blocks of 16 tokens, as vLLM's on a GPU; its blocks have 128 tokens on a CPU.
    """

    def __init__(self, blocks: int = 65_536) -> None:
        self._capacity = blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, prompt: str) -> int:
        """Returns the number of leading tokens in the cache, and caches the whole prompt."""
        hits, chain, missed = 0, 0, False
        for start in range(0, len(prompt) - _BLOCK_CHARS + 1, _BLOCK_CHARS):
            chain = hash((chain, prompt[start : start + _BLOCK_CHARS]))
            if chain in self._blocks:
                self._blocks.move_to_end(chain)
                hits += 0 if missed else 1
            else:
                missed = True
                self._blocks[chain] = None
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return hits * _BLOCK_TOKENS
