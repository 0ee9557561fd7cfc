"""How long an attempt may be silent: until its first token, and between two tokens.

A reply that is being written is no fault, however long it takes.  A request that hangs holds a slot
until it is given up: the wait for a first token is long before anything is known of the endpoint,
and follows from recent first tokens afterwards.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

FIRST = 5.0
"""Times the silence between tokens: the wait for a first token of which nothing is known."""
FACTOR = 3.0
"""Times the slowest recent first token: after that an attempt counts as hanging."""
FEWEST = 30
"""First tokens before which the wait is the longest."""
HALF_LIFE = 200
"""First tokens in which the weight of a slow one falls to half."""
SHARED = 3
"""Time-outs without a first token between from which on the endpoint, and not a single request,
counts as slow: the wait is the longest again."""
LOOK_SECONDS = 1.0
"""Between two looks at an attempt that is silent."""
_FADING = 0.5 ** (1.0 / HALF_LIFE)


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """The wait for a first token; every method returns the next value.  Times are in seconds.

    Attributes:
      least: Lower bound of the wait.
      most: Upper bound; in force until enough first tokens have arrived.
      slowest: Time of the slowest recent first token; it fades.
      arrived: First tokens so far.
      timeouts: Since the last first token.
    """

    least: float
    most: float
    slowest: float = 0.0
    arrived: int = 0
    timeouts: int = 0

    def after_token(self, seconds: float) -> "FirstTokens":
        """Returns the value after a first token that took so many seconds."""
        slowest = max(seconds, self.slowest * _FADING)
        return replace(self, slowest=slowest, arrived=self.arrived + 1, timeouts=0)

    def after_timeout(self) -> "FirstTokens":
        """Returns the value after a wait for a first token that was given up."""
        return replace(self, timeouts=self.timeouts + 1)

    @property
    def wait_seconds(self) -> float:
        """How long a first attempt waits for its first token."""
        if self.arrived < FEWEST or self.timeouts >= SHARED:
            return self.most
        return min(self.most, max(self.least, FACTOR * self.slowest))


class Listening:
    """One attempt, from sending to its end; within one event loop.

    Attributes:
      tokens: That have arrived.
      received: Returns the number of bytes so far: a comment or an empty part of a reply is a sign
        of life, and no token.
    """

    def __init__(self, first: Callable[[], float], between: float, longest: float) -> None:
        """Begins with nothing received.

        Args:
          first: Returns the longest wait for a first token, as far as is known now.
          between: Longest silence between tokens.
          longest: Longest time without a token while other signs of life arrive.
        """
        self.tokens = 0
        self.received: Callable[[], int] = lambda: 0
        self._first, self._between, self._longest = first, between, longest
        self._loop = asyncio.get_running_loop()
        self._began = self._token_at = self._life_at = self._loop.time()
        self._first_at: float | None = None
        self._bytes = 0
        self._limit = asyncio.timeout(None)

    def hear(self, tokens: int) -> None:
        """Notes tokens that have arrived now."""
        now = self._loop.time()
        if self._first_at is None:
            self._first_at = now
        self._token_at = now
        self.tokens += tokens

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Ends the block where nothing is received for too long.

        Raises:
          TimeoutError: That is so.
        """
        looking = self._loop.call_soon(lambda: None)

        def look() -> None:
            nonlocal looking
            now = self._loop.time()
            until = self._until(now)
            if until <= now:
                self._limit.reschedule(now)
            else:
                again = now + min(LOOK_SECONDS, self._between)
                looking = self._loop.call_at(min(until, again), look)

        try:
            async with self._limit:
                look()
                yield
        finally:
            looking.cancel()

    @property
    def expired(self) -> bool:
        """Whether the attempt was silent for too long."""
        return self._limit.expired()

    @property
    def seconds(self) -> float:
        """Time since sending."""
        return self._loop.time() - self._began

    @property
    def silent_seconds(self) -> float:
        """Time since the last token, or since sending."""
        return self._loop.time() - self._token_at

    @property
    def first_token_seconds(self) -> float | None:
        """From sending to the first token; None before it."""
        return None if self._first_at is None else self._first_at - self._began

    @property
    def waited_seconds(self) -> float:
        """Time without tokens: before the first, and since the last."""
        return (self.first_token_seconds or 0.0) + self.silent_seconds

    @property
    def silence(self) -> str:
        """The silence in words."""
        if self._first_at is None:
            return f"no answer within {self.silent_seconds:.1f} s"
        return f"silent for {self.silent_seconds:.1f} s after {self.tokens} tokens of a reply"

    def _until(self, now: float) -> float:
        """Returns the time at which the attempt is given up, as far as is known now."""
        if (received := self.received()) != self._bytes:
            self._bytes, self._life_at = received, now
        patience = self._first() if self._first_at is None else self._between
        silent = self._token_at + min(patience, self._longest)
        if self._life_at <= self._token_at:
            return silent
        return max(silent, min(self._token_at + self._longest, self._life_at + self._between))


class Silence:
    """The limits of silence at one model, learnt from its first tokens; on one event loop."""

    def __init__(self, least: float, between: float) -> None:
        """Knows nothing of the model.

        Args:
          least: Shortest wait for a first token, in seconds.
          between: Longest silence between tokens, in seconds.
        """
        self._between = between
        self._first = FirstTokens(min(least, FIRST * between), FIRST * between)

    @contextmanager
    def attempt(self, longest: float, *, repeated: bool) -> Iterator[Listening]:
        """Yields the watch over one attempt, and learns from it.

        Args:
          longest: Longest time without a token, in seconds, whatever else arrives.
          repeated: Whether an earlier attempt was given up: then the first token has all the time.
        """
        listening = Listening(
            lambda: self._first.most if repeated else self._first.wait_seconds,
            self._between,
            longest,
        )
        try:
            yield listening
        finally:
            seconds = listening.first_token_seconds
            if seconds is not None:
                self._first = self._first.after_token(seconds)
            elif listening.expired:
                self._first = self._first.after_timeout()
