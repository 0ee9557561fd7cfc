"""The log of a run."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.events import Event, EventKind, Fact


class Events(Protocol):
    """The log of a run."""

    def emit(self, run: int, fact: Fact) -> None: ...

    def read(
        self, run: int, after: int = 0, limit: int = 1000, kinds: Sequence[EventKind] = ()
    ) -> list[Event]:
        """Returns events with `seq` > `after`, in order; of `kinds` only, if any are given."""
        ...
