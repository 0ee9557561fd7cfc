"""A circuit breaker: who fails again and again is left alone for a while, then tried once."""

import enum
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace


class State(enum.StrEnum):
    """Whether a model is asked."""

    CLOSED = "closed"  # it is
    OPEN = "open"  # it is not, until its rest is over
    HALF_OPEN = "half_open"  # its rest is over: it is asked once, and its answer decides


@dataclass(frozen=True, slots=True)
class Rules:
    """When a circuit opens, and for how long.

    Attributes:
      failures: Failed attempts in a row that open it.
      rest_seconds: Of the first rest; each further one without an answer between is twice as long.
      longest_rest_seconds: Where that ends.
    """

    failures: int = 3
    rest_seconds: float = 30.0
    longest_rest_seconds: float = 480.0


@dataclass(frozen=True, slots=True)
class Circuit:
    """What is remembered of a model; times are seconds of any one clock.

    Attributes:
      failures: In a row, since the last answer.
      rests: Since the last answer.
      until: When its rest ends; None while it is closed.
      tried: When it was tried after its rest; None while nobody is trying.
    """

    failures: int = 0
    rests: int = 0
    until: float | None = None
    tried: float | None = None

    def state(self, now: float) -> State:
        """Returns whether the model is asked at this time."""
        if self.until is None:
            return State.CLOSED
        return State.OPEN if now < self.until else State.HALF_OPEN

    def admits(self, now: float, rules: Rules) -> bool:
        """Says whether one more request may be made; of a trial that came to nothing, another."""
        state = self.state(now)
        if state is State.HALF_OPEN:
            return self.tried is None or now - self.tried >= rules.rest_seconds
        return state is State.CLOSED

    def asked(self, now: float) -> "Circuit":
        """Returns the circuit once a request is on its way."""
        return replace(self, tried=now) if self.state(now) is State.HALF_OPEN else self

    def failed(self, now: float, rules: Rules) -> "Circuit":
        """Returns the circuit after a failed attempt."""
        counted = replace(self, failures=self.failures + 1)
        state = self.state(now)
        if state is State.OPEN or (state is State.CLOSED and counted.failures < rules.failures):
            return counted
        rest = min(rules.longest_rest_seconds, rules.rest_seconds * 2.0**self.rests)
        return replace(counted, rests=self.rests + 1).rested(now, rest)

    def rested(self, now: float, seconds: float) -> "Circuit":
        """Returns the circuit open for so long, and no shorter than it was."""
        until = max(now + seconds, self.until or 0.0)
        return replace(self, until=until, tried=None)


class Breaker:
    """A circuit that several threads share."""

    def __init__(
        self, rules: Rules | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules = rules or Rules()
        self._clock = clock
        self._lock = threading.Lock()
        self._circuit = Circuit()

    @property
    def open(self) -> bool:
        return self._circuit.state(self._clock()) is not State.CLOSED

    @property
    def rest_seconds(self) -> float:
        """How long it stays open; 0.0 where it may be asked."""
        return max(0.0, (self._circuit.until or 0.0) - self._clock())

    def admits(self) -> bool:
        """Says whether a request may be made now, and counts it as made."""
        with self._lock:
            now = self._clock()
            if not self._circuit.admits(now, self._rules):
                return False
            self._circuit = self._circuit.asked(now)
            return True

    def answered(self) -> None:
        """Closes the circuit: the model has answered."""
        with self._lock:
            self._circuit = Circuit()

    def failed(self) -> None:
        """Counts a failed attempt."""
        with self._lock:
            self._circuit = self._circuit.failed(self._clock(), self._rules)

    def rest(self, seconds: float) -> None:
        """Opens the circuit for as long as the model asks to be left alone."""
        with self._lock:
            longest = min(seconds, self._rules.longest_rest_seconds)
            self._circuit = self._circuit.rested(self._clock(), longest)
