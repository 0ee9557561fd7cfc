"""Keeps cells warm, lends each to one trial at a time, and throws away what is not clean."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from app.adapters.sandbox.cell import Cell, CellLost, Overdue
from app.adapters.sandbox.verdict import outcome
from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import Job, Limits, Mode, Outcome
from app.ports import Unavailable

_ATTEMPTS = 3  # a lost cell is tried again on two fresh ones

Start: TypeAlias = Callable[[Job], Cell]
"""Boots a cell for jobs like this one; raises Unavailable or EvaluatorBroken."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How many cells, and for how long.

    Attributes:
      max_cells: Most cells alive at once; a trial beyond that waits.
      max_trials: Trials after which a cell is replaced; 1 for one cell per trial.
      max_age_seconds: Age after which a cell is replaced.
    """

    max_cells: int = 4
    max_trials: int = 500
    max_age_seconds: float = 1800.0


@dataclass(frozen=True, slots=True)
class _Key:
    evaluator: str
    image: str
    mode: Mode
    limits: Limits


@dataclass(eq=False, slots=True)
class _Lent:
    cell: Cell | None
    key: _Key
    idle_since: float = field(default_factory=time.monotonic)


class Pool:
    """Warm cells by evaluator, image, mode and limits; safe to use from many threads."""

    def __init__(self, start: Start, settings: PoolSettings) -> None:
        self._start = start
        self._settings = settings
        self._changed = threading.Condition()
        self._idle: list[_Lent] = []
        self._alive = 0
        self._closed = False

    def run(self, job: Job) -> Outcome:
        """Returns how the job ended; a cell lost on the way is replaced twice.

        Raises:
          Unavailable: A cell could not be had.
          EvaluatorBroken: The evaluator cannot be imported or lacks the function.
        """
        reason = ""
        for _ in range(_ATTEMPTS):
            lent = self._take(job)
            fit = False
            try:
                assert lent.cell is not None
                boot_seconds = 0.0 if lent.cell.served else lent.cell.boot_seconds
                report = lent.cell.run(job)
                fit = lent.cell.clean
                if report.header["loader_lost"] and not report.result:
                    raise CellLost("the evaluator's zygote ended")
                return outcome(job, report, boot_seconds)
            except CellLost as error:
                reason = str(error)
            except Overdue:
                return _failed(FailureKind.TIMEOUT, "the cell had to be destroyed", job)
            finally:
                self._give_back(lent, fit)
        return _failed(FailureKind.SANDBOX_VIOLATION, f"every cell was lost: {reason}", job)

    def close(self) -> None:
        """Ends the idle cells now and every lent one when it comes back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._alive -= len(idle)
            self._changed.notify_all()
        for lent in idle:
            _end(lent)

    def _take(self, job: Job) -> _Lent:
        key = _Key(job.evaluator.digest, job.evaluator.image, job.mode, job.limits)
        lent, retired = self._reserve(key)
        for old in retired:
            _end(old)
        if lent.cell is None:
            try:
                lent.cell = self._start(job)
            finally:
                if lent.cell is None:
                    self._forget_one()
        return lent

    def _reserve(self, key: _Key) -> tuple[_Lent, list[_Lent]]:
        """Returns a cell or the right to boot one, and cells to end first."""
        with self._changed:
            while True:
                if self._closed:
                    raise Unavailable("the sandbox is closed")
                stale = [lent for lent in self._idle if self._stale(lent)]
                self._idle = [lent for lent in self._idle if lent not in stale]
                self._alive -= len(stale)
                for lent in reversed(self._idle):  # the warmest first
                    if lent.key == key:
                        self._idle.remove(lent)
                        return lent, stale
                if self._alive >= self._settings.max_cells and self._idle:
                    stale.append(self._idle.pop(0))  # the longest idle one of another problem
                    self._alive -= 1
                if self._alive < self._settings.max_cells:
                    self._alive += 1
                    return _Lent(None, key), stale
                self._changed.wait()

    def _stale(self, lent: _Lent) -> bool:
        assert lent.cell is not None
        return time.monotonic() - lent.cell.started > self._settings.max_age_seconds

    def _give_back(self, lent: _Lent, fit: bool) -> None:
        assert lent.cell is not None
        keep = fit and lent.cell.served < self._settings.max_trials
        with self._changed:
            keep = keep and not self._closed
            if keep:
                lent.idle_since = time.monotonic()
                self._idle.append(lent)
            self._changed.notify()
            if keep:
                return
        try:
            _end(lent)
        finally:
            self._forget_one()

    def _forget_one(self) -> None:
        with self._changed:
            self._alive -= 1
            self._changed.notify()


def _end(lent: _Lent) -> None:
    if lent.cell is not None:
        lent.cell.close()


def _failed(kind: FailureKind, detail: str, job: Job) -> Outcome:
    return Outcome(None, Failure(kind, detail), wall_seconds=job.limits.wall_seconds)
