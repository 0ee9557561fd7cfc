"""Keeps cells warm, lends each to one trial at a time, and throws away what is not clean."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.adapters.sandbox.cell import Cell, CellLost, Overdue
from app.adapters.sandbox.chores import Chores
from app.adapters.sandbox.protection import Protection, protections_of
from app.adapters.sandbox.verdict import more_than, outcome
from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Limits, Mode, Outcome
from app.ports.protocols import Unavailable

_ATTEMPTS = 3  # a lost cell is tried again on two fresh ones
_KEYS_REMEMBERED = 64
_PROBE = Evaluator("probe", {"evaluator.py": b"def evaluate(path):\n    return {}\n"})

Start: TypeAlias = Callable[[Job], Cell]
"""Boots a cell for jobs like this one; raises Unavailable or EvaluatorBroken."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How many cells, and for how long.

    Attributes:
      max_cells: Most trials at once; a trial beyond that waits.
      spares: Booted cells kept ready beyond those, so that a trial that needs one pays no boot.
      max_trials: Trials after which a cell is replaced; 1 for one cell per trial.
      max_age_seconds: Age after which a cell is replaced.
    """

    max_cells: int = 4
    spares: int = 1
    max_trials: int = 500
    max_age_seconds: float = 1800.0


DEFAULT_POOL = PoolSettings()


@dataclass(frozen=True, slots=True)
class _Key:
    evaluator: str
    image: str
    mode: Mode
    limits: Limits


@dataclass(eq=False, slots=True)
class _Warm:
    """A booted cell.

    Attributes:
      boot_seconds: What the next trial in it pays for its boot.
    """

    cell: Cell
    key: _Key
    boot_seconds: float = 0.0


class Pool:
    """Warm cells by evaluator, image, mode and limits; safe to use from many threads."""

    def __init__(self, start: Start, settings: PoolSettings) -> None:
        self._start = start
        self._settings = settings
        self._changed = threading.Condition()
        self._idle: list[_Warm] = []
        self._lent = 0
        self._booting: list[_Key] = []
        self._asked: dict[_Key, bool] = {}
        self._walls: dict[str, Any] | None = None
        self._chores = Chores()
        self._closed = False

    def run(self, job: Job) -> Outcome:
        """Returns how the job ended; a cell lost on the way is replaced twice.

        Raises:
          Unavailable: A cell could not be had, or the machinery between went away.
          EvaluatorBroken: The evaluator cannot be imported or lacks the function.
        """
        reason = ""
        for attempt in range(_ATTEMPTS):
            warm = self._take(job, fresh=attempt > 0)
            fit = False
            try:
                report = warm.cell.run(job)
                fit = warm.cell.clean
                if report.header["loader_lost"] and not report.result:
                    raise CellLost("the evaluator's zygote ended")
                return outcome(job, report, warm.boot_seconds)
            except CellLost as error:
                reason = str(error)
                if warm.cell.starved():
                    return _failed(FailureKind.MEMORY, more_than(job.limits), job)
            except Overdue:
                warm.cell.check()
                return _failed(FailureKind.TIMEOUT, "the cell had to be destroyed", job)
            finally:
                self._give_back(warm, fit)
        return _failed(FailureKind.SANDBOX_VIOLATION, f"every cell was lost: {reason}", job)

    def protections(self) -> list[Protection]:
        """Returns which walls stand around a program here, found out by booting a cell.

        Raises:
          Unavailable: No cell could be booted.
        """
        if self._walls is None:
            cell = self._start(Job(_PROBE, "evaluate", ((".py", b""),), mode=Mode.GUARDED))
            self._walls = cell.walls
            cell.close()
        return protections_of(self._walls)

    def ready_cells(self) -> int:
        """Returns how many booted cells wait for a trial."""
        with self._changed:
            return len(self._idle)

    def close(self) -> None:
        """Ends idle cells and spares now, and every lent one when it comes back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for warm in idle:
            self._end(warm)
        self._chores.finish()

    def _take(self, job: Job, *, fresh: bool) -> _Warm:
        key = _Key(job.evaluator.digest, job.evaluator.image, job.mode, job.limits)
        found = self._reserve(key, fresh)
        if found is not None:
            self._top_up(job, key)
            return found
        try:
            cell = self._start(job)
        except BaseException:
            with self._changed:
                self._lent -= 1
                self._changed.notify()
            raise
        self._walls = cell.walls
        self._top_up(job, key)
        return _Warm(cell, key, cell.boot_seconds)

    def _reserve(self, key: _Key, fresh: bool) -> _Warm | None:
        """Returns an idle cell, or None for the right to boot one.

        Args:
          key: What the cell is for.
          fresh: Whether an idle one will not do, because one has just been lost.
        """
        with self._changed:
            while True:
                if self._closed:
                    raise Unavailable("the sandbox is closed")
                self._retire(lambda warm: not self._usable(warm))
                if self._lent < self._settings.max_cells:
                    self._lent += 1
                    found = None if fresh else self._warmest(key)
                    if found is not None:
                        self._idle.remove(found)
                    else:
                        self._make_room(key)
                    return found
                self._changed.wait()

    def _warmest(self, key: _Key) -> _Warm | None:
        return next((warm for warm in reversed(self._idle) if warm.key == key), None)

    def _usable(self, warm: _Warm) -> bool:
        age_seconds = time.monotonic() - warm.cell.started
        return age_seconds <= self._settings.max_age_seconds and warm.cell.silent()

    def _retire(self, which: Callable[[_Warm], bool]) -> None:
        for warm in [warm for warm in self._idle if which(warm)]:
            self._idle.remove(warm)
            self._end(warm)

    def _make_room(self, key: _Key) -> None:
        """Ends an idle cell, best one of another key, if there is now one too many.

        There is one: of the cells that are not lent, at most `spares` are still booting.
        """
        alive = self._lent + len(self._idle) + len(self._booting)
        if alive > self._settings.max_cells + self._settings.spares:
            others = [warm for warm in self._idle if warm.key != key]
            leaving = others[0] if others else self._idle[0]
            self._idle.remove(leaving)
            self._end(leaving)

    def _give_back(self, warm: _Warm, fit: bool) -> None:
        keep = fit and warm.cell.served < self._settings.max_trials
        warm.boot_seconds = 0.0
        with self._changed:
            self._lent -= 1
            if keep and not self._closed:
                self._idle.append(warm)
            else:
                self._end(warm)
            self._changed.notify()

    def _end(self, warm: _Warm) -> None:
        """Ends a cell without making a trial wait for it."""
        self._chores.begin(warm.cell.close)

    def _top_up(self, job: Job, key: _Key) -> None:
        """Begins the boot of a spare where none is ready.

        A key's first job boots none: a probe and a comparison of modes have no second.
        """
        with self._changed:
            again = self._asked.pop(key, False)
            self._asked[key] = True
            if len(self._asked) > _KEYS_REMEMBERED:
                self._asked.pop(next(iter(self._asked)))
            ready = self._booting.count(key) + sum(warm.key == key for warm in self._idle)
            room = self._settings.spares - len(self._booting)
            if not again or self._closed or room <= 0 or ready >= self._settings.spares:
                return
            self._booting.append(key)
            self._make_room(key)
        self._chores.begin(lambda: self._boot_spare(job, key))

    def _boot_spare(self, job: Job, key: _Key) -> None:
        cell = None
        try:
            cell = self._start(job)
        except EvaluatorBroken:
            return  # the next trial that needs a cell says it
        finally:
            with self._changed:
                self._booting.remove(key)
                if cell is not None and not self._closed:
                    self._idle.insert(0, _Warm(cell, key))
                    cell = None
                self._changed.notify()
            if cell is not None:
                cell.close()


def _failed(kind: FailureKind, detail: str, job: Job) -> Outcome:
    return Outcome(None, Failure(kind, detail), wall_seconds=job.limits.wall_seconds)
