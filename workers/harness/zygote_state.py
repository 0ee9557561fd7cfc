"""What the zygote keeps from trial to trial."""

from __future__ import annotations

from dataclasses import dataclass, field

from .evaluator_handles import EvaluatorZygote
from .forks import ForkFilter
from .pipes import MOST_PROGRAMS, MOVES_BYTES, Capture, Collector
from .sandbox_layout import SandboxLayout
from .syscall_filter import SyscallFilter

_RESULT_OVERHEAD_BYTES = 65_536


@dataclass
class ZygoteState:
    """What outlives a trial.

    Attributes:
      program_filter: The filter that a program's process installs; None where it inherits that of
        the zygote, for which the kernel does not compile it once more.
      fork_filter: The filter that has the zygote answer forks, if nothing else bounds them.
      host: Descriptors to read from and to write to.
      wake: A pipe's reading end that becomes readable when a child ends.
      baseline_bytes: Memory that every forked process shares with the zygote.
      served: Trials so far.
      programs: Programs so far, of all trials.
    """

    layout: SandboxLayout
    mode: str
    evaluator_zygote: EvaluatorZygote
    program_filter: SyscallFilter | None
    fork_filter: ForkFilter | None
    host: tuple[int, int]
    wake: int
    baseline_bytes: int
    result_bytes: int
    streams: tuple[Capture, ...] = field(init=False)
    results: Collector = field(init=False)
    moves: Collector = field(init=False)
    served: int = 0
    programs: int = 0

    def __post_init__(self) -> None:
        self.streams = tuple(Capture() for _ in range(2 + 2 * MOST_PROGRAMS))
        self.results = Collector(self.result_bytes + _RESULT_OVERHEAD_BYTES)
        self.moves = Collector(MOVES_BYTES)
