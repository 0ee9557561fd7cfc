"""Places at a model: a thread takes one before it draws parents for a prompt.

A prompt that is written while the model is busy shows what the search knew before it had to wait.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.ports.protocols import Unavailable

PATIENCE_SECONDS = 600.0
"""How long a thread waits for a place: as long as for an answer."""
_LOOK_SECONDS = 0.5
"""Between two looks at a limit that rises while no place is given back."""


class ModelPlaces:
    """The places of one model in one process; threads take them in the order of their coming."""

    def __init__(
        self, limit: Callable[[], int | None], *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Takes nothing.

        Args:
          limit: Returns how many places there are at this moment; None for any number.
          patience_seconds: Longest wait.
        """
        self._limit = limit
        self._patience = patience_seconds
        self._changed = threading.Condition()
        self._taken = 0

    @contextmanager
    def take(self) -> Iterator[Callable[[], None]]:
        """Waits for a place, and yields the function that gives it back; leaving does so, too.

        Raises:
          Unavailable: No place became free in time.
        """
        with self._changed:
            self._wait()
            self._taken += 1
        given = threading.Event()

        def give() -> None:
            with self._changed:
                if not given.is_set():
                    given.set()
                    self._taken -= 1
                    # A limit that has risen meanwhile may admit a second waiting thread.
                    self._changed.notify(2)

        try:
            yield give
        finally:
            give()

    def _wait(self) -> None:
        until = time.monotonic() + self._patience
        while (limit := self._limit()) is not None and self._taken >= limit:
            left = until - time.monotonic()
            if left <= 0:
                raise Unavailable(f"no place at the model became free within {self._patience:g} s")
            self._changed.wait(min(left, _LOOK_SECONDS))
