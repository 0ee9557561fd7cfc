"""What a trial uses: processor time, memory, files, processes, output; and what ends it.

The kernel bounds each process.  What it does not bound in sum is measured here, by the zygote,
which looks at a trial again and again while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import processes
from .forks import TaskCount
from .holdings import MEMORY, HoldingsWatch
from .pipes import TrialPipes
from .sandbox_layout import LIMIT, MEASURED, UIDS
from .trial_files import TrialFiles
from .turns import Turns, held_bytes
from .zygote_state import ZygoteState

_CROWD = 16
"""Processes and threads of a trial from which on they have the lowest priority: else the zygote, at
the deadline, has a share of the processors that is one in as many."""
_KIB = 1024


class TrialUsage:
    """Measures one trial.

    `children` has the seat of each process of a program that runs, which changes as they start and
    end; `tasks` counts the processes and threads of the trial.

    Attributes:
      stopped_by: The bound that the trial exceeds, or "timeout"; "" while there is none.
      blamed: The seat of the player that exceeds it; None where that is nobody's or everybody's.
      largest: The seat of the player that held the most memory at the last look.
      cpu_seconds: Of the processes that have ended.
      waited_seconds: The longest that one process was ready to run and waited for a processor.
      peak_kib: The most memory that one process had, or all together where they are measured.
    """

    def __init__(
        self,
        state: ZygoteState,
        header: Mapping[str, Any],
        files: TrialFiles,
        turns: Turns | None,
        pipes: TrialPipes,
        children: dict[int, int],
        tasks: Callable[[], TaskCount],
    ) -> None:
        self._state = state
        self._bounds: Mapping[str, Any] = header["limits"]
        self._game: Mapping[str, Any] | None = None if turns is None else header["game"]
        self._turns = turns
        self._pipes = pipes
        self._children = children
        self._tasks = tasks
        self._uids = files.uids
        self._holdings = self._watch_of_holdings(files)
        self._oom_before = processes.oom_kills(state.layout)
        self._times_before: dict[int, processes.ProcessorTime] = {}
        self._used_seconds = 0.0
        self.stopped_by = ""
        self.blamed: int | None = None
        self.largest: int | None = None
        self.cpu_seconds = 0.0
        self.waited_seconds = 0.0
        self.peak_kib = 0

    def _watch_of_holdings(self, files: TrialFiles) -> HoldingsWatch | None:
        """Returns what measures the trial, where the kernel does not bound it as a whole."""
        layout = self._state.layout
        if not layout.measured:
            return None
        shared = [(place, layout.first_uid) for place in layout.shared_places]
        places = [(program.confinement.directory, program.confinement.uid)
                  for program in files.programs]  # fmt: skip
        if self._state.mode == "guarded":
            places.append((files.request["directory"], layout.first_uid))
        file_bytes = int(self._bounds["file_bytes"])
        filled = [
            (place, program.confinement.uid)
            for program in files.programs
            for place in program.confinement.writable
        ]
        whole = tuple(dict.fromkeys([*places, *shared]))
        return HoldingsWatch(layout, file_bytes, whole, tuple(dict.fromkeys(filled)))

    def add(self, cpu_seconds: float, peak_kib: int) -> None:
        """Counts a process that has ended."""
        self.cpu_seconds += cpu_seconds
        self.peak_kib = max(self.peak_kib, peak_kib)

    def ignore_past_of(self, pid: int) -> None:
        """Does not count what a process has used so far, which is of earlier trials."""
        self._times_before = processes.processor_times((pid,))

    def time_out(self) -> None:
        """Ends the trial, and notes what it used and waited for while that can be read."""
        self.stopped_by = "timeout"
        state = self._state
        alive = processes.others(state.layout, frozenset((state.evaluator_zygote.pid,)))
        unknown, used = processes.ProcessorTime(), self.cpu_seconds
        for pid, time_of in processes.processor_times(alive).items():
            before = self._times_before.get(pid, unknown)
            used += time_of.used - before.used
            self.waited_seconds = max(self.waited_seconds, time_of.waited - before.waited)
        self._used_seconds = used

    def oom_kills(self) -> int:
        """Returns how many of the trial's processes the kernel has killed for want of memory."""
        return processes.oom_kills(self._state.layout) - self._oom_before

    def check_files_of_turns(self) -> None:
        """Ends a game in which a player has filled more than its share of a file system."""
        turns = self._turns
        if turns is not None and turns.hoarding is not None and not self.stopped_by:
            self.stopped_by, self.blamed = "hoarding", turns.hoarding

    def check_output(self) -> None:
        """Ends a trial that prints too much; each player of a game may print as much as allowed."""
        most = int(self._bounds["output_bytes"])
        seats = range(0 if self._turns is None else len(self._uids))
        flooding = next((seat for seat in seats if self._pipes.printed(seat) > most), None)
        if flooding is not None or self._pipes.overflowing(most * (1 + len(seats))):
            self.stopped_by, self.blamed = "output_limit", flooding

    def check(self, deadline: float) -> None:
        """Ends a trial that uses too much memory: a full cgroup slows down the zygote as well.

        Where the kernel bounds no sum, it also ends one with too many files, or too large ones.
        What is not known by the deadline does not matter any more.
        """
        state = self._state
        if self._game is not None:
            held = held_bytes(state.layout, self._uids, self._children, state.baseline_bytes)
            self.largest = held.index(max(held))
            if max(held) > (int(self._game["memory_mib"]) << 20):
                self.stopped_by, self.blamed = MEMORY, self.largest
                return
        if self._turns is not None:
            self._turns.look_at_files()
            self.check_files_of_turns()
        self._check_crowd()
        if state.layout.counted_memory and self.oom_kills():
            self.stopped_by = MEMORY
        if self._holdings is None or self.stopped_by:
            return
        alive = processes.others(state.layout, frozenset((state.evaluator_zygote.pid,)))
        resident = processes.resident_bytes(alive, state.baseline_bytes)
        left = (int(self._bounds["memory_mib"]) << 20) - resident.private
        exceeded, shared = self._holdings.look(alive, left, deadline)
        if not state.layout.counted_memory:
            shared = max(shared, resident.shared)
            self.peak_kib = max(self.peak_kib, (resident.private + shared) // _KIB)
            exceeded = MEMORY if shared > left else exceeded
        self.stopped_by = exceeded
        # Only the player whose turn it is runs.
        if exceeded and self._turns is not None:
            self.blamed = self.largest if exceeded == MEMORY else self._turns.moving

    def _check_crowd(self) -> None:
        """Lets a crowd of processes give way to this one, which has to end it.

        Where nothing refuses a fork, a trial with more of them than it may have is ended.
        """
        layout = self._state.layout
        if layout.identities != UIDS or layout.bounded_by not in (LIMIT, MEASURED):
            return
        most = int(self._bounds["processes"])
        # One player moves at a time.
        most *= len(self._uids) if self._turns is None else 1
        tasks = self._tasks()
        if layout.bounded_by == LIMIT and tasks.total > _CROWD:
            processes.give_way(tuple(sorted(set(self._uids))))
        elif layout.bounded_by == MEASURED and tasks.programs > most:
            self.stopped_by = "processes"
            self.blamed = None if self._turns is None else self._turns.moving

    def report(self) -> dict[str, Any]:
        """Returns the fields of the trial's report that are known here."""
        return {
            "stopped_by": self.stopped_by,
            "blamed": self.blamed,
            "largest": self.largest,
            "cpu_seconds": max(self.cpu_seconds, self._used_seconds),
            "waited_seconds": self.waited_seconds,
            "peak_kib": self.peak_kib,
        }
