"""A circuit breaker: a model that fails repeatedly is left alone for a while, then tried once."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When a circuit opens, and for how long.

    Attributes:
      failures: Failed attempts in a row that open it.
      rest_seconds: Of the first rest; each further rest without an answer between is twice as long.
      longest_rest_seconds: Upper bound of a rest.
    """

    failures: int = 3
    rest_seconds: float = 30.0
    longest_rest_seconds: float = 480.0


class CircuitBreaker:
    """The circuit of a model, which several threads share.

    Requests pass while it is closed.  It opens after several failures; after the rest one request
    passes, and its result closes it or begins the next rest.
    """

    def __init__(
        self, rules: BreakerRules | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules = rules or BreakerRules()
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = self._rests = 0
        self._until: float | None = None
        self._tried_at: float | None = None

    @property
    def open(self) -> bool:
        return self._until is not None

    @property
    def rest_seconds(self) -> float:
        """Time until a request may pass; 0.0 where one may pass now."""
        return max(0.0, (self._until or 0.0) - self._clock())

    def admits(self) -> bool:
        """Returns whether a request may pass now, and counts it as sent.

        A trial that got no result in the time of a first rest is repeated.
        """
        with self._lock:
            now = self._clock()
            if self._until is None:
                return True
            tried = self._tried_at
            recent = tried is not None and now - tried < self._rules.rest_seconds
            if now < self._until or recent:
                return False
            self._tried_at = now
            return True

    def answered(self) -> None:
        """Closes the circuit after an answer."""
        with self._lock:
            self._failures = self._rests = 0
            self._until = self._tried_at = None

    def failed(self) -> None:
        """Counts a failed attempt."""
        with self._lock:
            self._failures += 1
            few = self._until is None and self._failures < self._rules.failures
            if few or self.rest_seconds > 0:
                return
            seconds = self._rules.rest_seconds * 2.0**self._rests
            self._rests += 1
            self._rest(seconds)

    def rest(self, seconds: float) -> None:
        """Opens the circuit for the time of a `Retry-After`, within the longest rest."""
        with self._lock:
            self._rest(seconds)

    def _rest(self, seconds: float) -> None:
        """Opens the circuit for so many seconds, and no shorter than before."""
        until = self._clock() + min(seconds, self._rules.longest_rest_seconds)
        self._until = max(until, self._until or 0.0)
        self._tried_at = None
