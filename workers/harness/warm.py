"""What a cell keeps from trial to trial."""

from __future__ import annotations

from dataclasses import dataclass, field

from .capture import Capture, Collector
from .forks import Asking
from .loader import Loader
from .room import Room
from .seccomp import Filter

_RESULT_OVERHEAD_BYTES = 65_536


@dataclass
class Cell:
    """What outlives a trial.

    Attributes:
      asking: The filter under which forks ask, where nothing else bounds them; else None.
      host: Descriptors to read from and to write to.
      wake: A pipe's reading end that becomes readable when a child ends.
      baseline_bytes: Memory that every forked process shares with the zygote.
      served: Trials so far.
      programs: Programs so far, of all trials.
    """

    room: Room
    mode: str
    loader: Loader
    sieve: Filter
    asking: Asking | None
    host: tuple[int, int]
    wake: int
    baseline_bytes: int
    result_bytes: int
    streams: tuple[Capture, Capture, Capture, Capture] = field(init=False)
    results: Collector = field(init=False)
    served: int = 0
    programs: int = 0

    def __post_init__(self) -> None:
        self.streams = (Capture(), Capture(), Capture(), Capture())
        self.results = Collector(self.result_bytes + _RESULT_OVERHEAD_BYTES)
