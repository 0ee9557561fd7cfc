"""A circuit breaker: a model that fails repeatedly is left alone for a while, then tried once."""

import enum
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace


class CircuitState(enum.StrEnum):
    """Whether requests pass to a model."""

    CLOSED = "closed"
    """Requests pass."""
    OPEN = "open"
    """Requests do not pass until the rest is over."""
    HALF_OPEN = "half_open"
    """The rest is over: one request passes, and its result decides."""


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


@dataclass(frozen=True, slots=True)
class Circuit:
    """The recent failures of a model; every method returns a value.  Times are in seconds.

    Attributes:
      failures: In a row, since the last answer.
      rests: Since the last answer.
      until: End of the rest; None while the circuit is closed.
      tried_at: Time of the trial request after the rest; None without one.
    """

    failures: int = 0
    rests: int = 0
    until: float | None = None
    tried_at: float | None = None

    def state(self, now: float) -> CircuitState:
        """Returns the state at this time."""
        if self.until is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self.until else CircuitState.HALF_OPEN

    def admits(self, now: float, rules: BreakerRules) -> bool:
        """Returns whether a request may pass; a trial that got no result is repeated."""
        state = self.state(now)
        if state is CircuitState.HALF_OPEN:
            return self.tried_at is None or now - self.tried_at >= rules.rest_seconds
        return state is CircuitState.CLOSED

    def sending(self, now: float) -> "Circuit":
        """Returns the circuit after a request has passed."""
        return replace(self, tried_at=now) if self.state(now) is CircuitState.HALF_OPEN else self

    def failed(self, now: float, rules: BreakerRules) -> "Circuit":
        """Returns the circuit after a failed attempt."""
        counted = replace(self, failures=self.failures + 1)
        state = self.state(now)
        few = state is CircuitState.CLOSED and counted.failures < rules.failures
        if state is CircuitState.OPEN or few:
            return counted
        rest = min(rules.longest_rest_seconds, rules.rest_seconds * 2.0**self.rests)
        return replace(counted, rests=self.rests + 1).opened(now, rest)

    def opened(self, now: float, seconds: float) -> "Circuit":
        """Returns the circuit open for so many seconds, and no shorter than before."""
        until = max(now + seconds, self.until or 0.0)
        return replace(self, until=until, tried_at=None)


class CircuitBreaker:
    """A circuit that several threads share."""

    def __init__(
        self, rules: BreakerRules | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules = rules or BreakerRules()
        self._clock = clock
        self._lock = threading.Lock()
        self._circuit = Circuit()

    @property
    def open(self) -> bool:
        return self._circuit.state(self._clock()) is not CircuitState.CLOSED

    @property
    def rest_seconds(self) -> float:
        """Time until a request may pass; 0.0 where one may pass now."""
        return max(0.0, (self._circuit.until or 0.0) - self._clock())

    def admits(self) -> bool:
        """Returns whether a request may pass now, and counts it as sent."""
        with self._lock:
            now = self._clock()
            if not self._circuit.admits(now, self._rules):
                return False
            self._circuit = self._circuit.sending(now)
            return True

    def answered(self) -> None:
        """Closes the circuit after an answer."""
        with self._lock:
            self._circuit = Circuit()

    def failed(self) -> None:
        """Counts a failed attempt."""
        with self._lock:
            self._circuit = self._circuit.failed(self._clock(), self._rules)

    def rest(self, seconds: float) -> None:
        """Opens the circuit for the time of a `Retry-After`, within the longest rest."""
        with self._lock:
            longest = min(seconds, self._rules.longest_rest_seconds)
            self._circuit = self._circuit.opened(self._clock(), longest)
