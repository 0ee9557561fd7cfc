"""Keeps sandboxes warm, lends each to one trial at a time, and replaces unclean ones."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app.adapters.sandbox.bundle import beyond_the_library
from app.adapters.sandbox.connection import Loss, SandboxLost, SandboxOverdue
from app.adapters.sandbox.protection import Isolation, protections_of, summary
from app.adapters.sandbox.verdict import more_than, outcome, starved
from app.adapters.sandbox.warm_sandbox import WarmSandbox
from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Limits, Mode, Outcome
from app.ports.protocols import NEVER, Protection, Starved, Stop, Stopped, Unavailable

_ATTEMPTS = 3
"""Most attempts at a job; it is repeated in a fresh sandbox after its sandbox was lost."""
_HELD_UP_SECONDS = 15.0
"""Time beyond a deadline that only a pause of this process explains, because no wait is so long."""
_KEYS_REMEMBERED = 64
_FINISHING_SECONDS = 15.0
_SPARE_FROM = 0.8
"""Share of a sandbox's trials or age from which on a spare is kept ready for it."""
_LOOKING_SECONDS = 60.0
"""Longest time between two looks at the age of idle sandboxes."""
_BLAMED: Mapping[Loss, Callable[[Limits], tuple[FailureKind, str]]] = {
    Loss.MEMORY: lambda limits: (FailureKind.MEMORY, more_than(limits)),
    Loss.KERNEL: lambda _: (FailureKind.SANDBOX_VIOLATION, "it ended the kernel of its sandbox"),
}
"""Losses that are the program's doing."""
_PROBE = Evaluator("probe", {"evaluator.py": b"def evaluate(path):\n    return {}\n"})
_PROBE_JOB = Job(_PROBE, "evaluate", ((".py", b""),), mode=Mode.GUARDED)

log = logging.getLogger(__name__)

Start: TypeAlias = Callable[[Job, bool], WarmSandbox]
"""Boots a sandbox for jobs like this one, with or without NumPy for programs.

Raises Unavailable or EvaluatorBroken.
"""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How many sandboxes, and for how long.

    Attributes:
      max_sandboxes: Most trials at once; a trial beyond that waits.
      spares: Booted sandboxes kept ready beyond those, so that a trial that needs one pays no boot.
      max_trials: Trials after which a sandbox is replaced; 1 for one sandbox per trial.
      max_age_seconds: Age after which a sandbox is replaced, and an idle one ends.
      trials_per_evaluator: Most trials of one process of a guarded evaluator.
    """

    max_sandboxes: int = 4
    spares: int = 1
    max_trials: int = 500
    max_age_seconds: float = 1800.0
    trials_per_evaluator: int = 50


DEFAULT_POOL = PoolSettings()


@dataclass(frozen=True, slots=True)
class _PoolKey:
    evaluator: str
    image: str
    mode: Mode
    limits: Limits
    numpy: bool


@dataclass(eq=False, slots=True)
class _PooledSandbox:
    """A booted sandbox.

    Attributes:
      boot_seconds: What the next trial in it pays for its boot.
    """

    sandbox: WarmSandbox
    key: _PoolKey
    boot_seconds: float = 0.0


class Pool:
    """Warm sandboxes by evaluator, image, mode and limits; safe to use from many threads."""

    def __init__(self, start: Start, settings: PoolSettings) -> None:
        self._start = start
        self._settings = settings
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._aging = threading.Condition(lock)
        self._watched = False
        self._idle: list[_PooledSandbox] = []
        self._lent = 0
        self._booting: list[_PoolKey] = []
        self._with_numpy: set[str] = set()
        self._breaking: set[_PoolKey] = set()
        self._asked: dict[_PoolKey, bool] = {}
        self._isolation: Isolation | None = None
        self._background = BackgroundTasks()
        self._closed = False

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        """Returns how the job ended; a sandbox lost on the way is replaced twice.

        A job that has had its time in sandboxes that were lost is not repeated: a program that can
        end its sandbox would have the time of three.

        Raises:
          Stopped: It was asked to stop; its sandbox is not used again, and its place is free.
          Unavailable: A sandbox could not be had, or the machinery between went away.
          Starved: The machine had no time for the trial.
          EvaluatorBroken: The evaluator cannot be imported or lacks the function.
        """
        reason, spent_seconds = "", 0.0
        for attempt in range(_ATTEMPTS):
            warm = self._take(job, stop, fresh=attempt > 0)
            fit = False
            try:
                if fit := stop.asked:
                    raise Stopped("the trial was withdrawn before it began")
                began = time.monotonic()
                with stop.then(warm.sandbox.interrupt):
                    report = warm.sandbox.run(job)
                # A withdrawn trial may still interrupt its sandbox.
                fit = warm.sandbox.clean and not stop.asked
                if report.header["evaluator_lost"] and not report.result:
                    raise SandboxLost("the evaluator's zygote ended")
                ended = outcome(job, report, warm.boot_seconds)
                if starved(job, report):
                    raise Starved(ended)
                return ended
            except SandboxLost as error:
                if stop.asked:
                    raise Stopped("the trial was withdrawn") from error
                reason = str(error)
                if (loss := warm.sandbox.loss()) in _BLAMED:
                    return _failed(*_BLAMED[loss](job.limits), job)
                took_seconds = time.monotonic() - began
                if took_seconds < job.limits.wall_seconds + _HELD_UP_SECONDS:
                    spent_seconds += took_seconds
                if spent_seconds >= job.limits.wall_seconds:
                    return _failed(FailureKind.TIMEOUT, f"its sandbox was lost: {reason}", job)
            except SandboxOverdue:
                warm.sandbox.check()
                return _failed(FailureKind.TIMEOUT, "the sandbox had to be destroyed", job)
            finally:
                self._give_back(warm, fit)
        return _failed(FailureKind.SANDBOX_VIOLATION, f"every sandbox was lost: {reason}", job)

    def protections(self) -> list[Protection]:
        """Returns which protections are in force, as a booted sandbox reports them.

        Raises:
          Unavailable: No sandbox could be booted.
        """
        return protections_of(self.isolation())

    def summary(self, backend: str) -> str:
        """Returns one line on the isolation in force; see `protections`."""
        return summary(backend, self.isolation())

    def isolation(self) -> Isolation:
        """Returns what a sandbox reported when it booted; see `protections`."""
        isolation = self._isolation
        if isolation is None:
            sandbox = self._start(_PROBE_JOB, False)
            self._isolation = isolation = sandbox.isolation
            sandbox.close()
        return isolation

    def ready_sandboxes(self) -> int:
        """Returns how many booted sandboxes wait for a trial."""
        with self._changed:
            return len(self._idle)

    def close(self) -> None:
        """Ends idle sandboxes and spares now, and every lent one when it comes back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
            self._aging.notify_all()
        for warm in idle:
            self._end(warm)
        self._background.finish()

    def _take(self, job: Job, stop: Stop, *, fresh: bool) -> _PooledSandbox:
        key = self._key(job)
        with stop.then(self._wake):
            idle = self._reserve(key, fresh, stop)
        if idle is not None:
            self._top_up(job, idle)
            return idle
        try:
            sandbox = self._start(job, key.numpy)
        except BaseException:
            # The next request for the isolation has to try whether a sandbox boots.
            self._isolation = None
            with self._changed:
                self._lent -= 1
                self._changed.notify()
            raise
        self._isolation = sandbox.isolation
        warm = _PooledSandbox(sandbox, key, sandbox.boot_seconds)
        self._top_up(job, warm)
        return warm

    def _key(self, job: Job) -> _PoolKey:
        """Returns which sandboxes suit a job.

        Once a program of a problem may need NumPy, all sandboxes of the problem have it: importing
        it in a trial takes longer than most trials, and its generator would not be seeded.
        """
        digest = job.evaluator.digest
        with self._changed:
            if digest not in self._with_numpy and beyond_the_library(
                source for suffix, source in job.programs if suffix == ".py"
            ):
                self._with_numpy.add(digest)
            numpy = digest in self._with_numpy
        return _PoolKey(digest, job.evaluator.image, job.mode, job.limits, numpy)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _reserve(self, key: _PoolKey, fresh: bool, stop: Stop) -> _PooledSandbox | None:
        """Returns an idle sandbox, or None for the right to boot one.

        Args:
          key: What the sandbox is for.
          fresh: Whether an idle one is not acceptable, because one has just been lost.
          stop: Ends the wait for a place.
        """
        with self._changed:
            while True:
                if self._closed:
                    raise Unavailable("the sandbox is closed")
                if stop.asked:
                    raise Stopped("the trial was withdrawn before it had a place")
                self._retire(lambda warm: not self._usable(warm))
                if self._lent < self._settings.max_sandboxes:
                    self._lent += 1
                    idle = None if fresh else self._warmest(key)
                    if idle is not None:
                        self._idle.remove(idle)
                    else:
                        self._evict(key)
                    return idle
                self._changed.wait()

    def _warmest(self, key: _PoolKey) -> _PooledSandbox | None:
        return next((warm for warm in reversed(self._idle) if warm.key == key), None)

    def _usable(self, warm: _PooledSandbox) -> bool:
        return self._left_seconds(warm) >= 0.0 and warm.sandbox.silent()

    def _left_seconds(self, warm: _PooledSandbox) -> float:
        return warm.sandbox.started + self._settings.max_age_seconds - time.monotonic()

    def _end_idle(self) -> None:
        """Ends idle sandboxes when they are old enough, also if no trial comes."""
        with self._changed:
            while self._idle and not self._closed:
                left = min(map(self._left_seconds, self._idle))
                self._aging.wait(min(max(left, 0.0), _LOOKING_SECONDS))
                self._retire(lambda warm: not self._usable(warm))
            self._watched = False

    def _keep(self, warm: _PooledSandbox, position: int) -> None:
        self._idle.insert(position, warm)
        if not self._watched:
            self._watched = True
            self._background.begin(self._end_idle)

    def _retire(self, which: Callable[[_PooledSandbox], bool]) -> None:
        for warm in [warm for warm in self._idle if which(warm)]:
            self._idle.remove(warm)
            self._end(warm)

    def _evict(self, key: _PoolKey) -> None:
        """Ends an idle sandbox, best one of another key, if there is now one too many.

        There is one: of the sandboxes that are not lent, at most `spares` are still booting.
        """
        alive = self._lent + len(self._idle) + len(self._booting)
        if alive > self._settings.max_sandboxes + self._settings.spares:
            others = [warm for warm in self._idle if warm.key != key]
            leaving = others[0] if others else self._idle[0]
            self._idle.remove(leaving)
            self._end(leaving)

    def _give_back(self, warm: _PooledSandbox, fit: bool) -> None:
        keep = fit and warm.sandbox.served < self._settings.max_trials
        warm.boot_seconds = 0.0
        with self._changed:
            self._lent -= 1
            if not fit:
                self._breaking.add(warm.key)
            if keep and not self._closed:
                self._keep(warm, len(self._idle))
            else:
                self._end(warm)
            self._changed.notify()

    def _end(self, warm: _PooledSandbox) -> None:
        """Ends a sandbox without making a trial wait for it."""
        self._background.begin(warm.sandbox.close)

    def _top_up(self, job: Job, warm: _PooledSandbox) -> None:
        """Begins the boot of a spare where none is ready and one may soon be needed.

        That is when the sandbox that the job has is near its end, or if one of its kind was lost
        before.  A key's first job boots none: a probe and a comparison of modes have no second.
        """
        key, settings = warm.key, self._settings
        ending = (
            warm.sandbox.served + 1 >= _SPARE_FROM * settings.max_trials
            or self._left_seconds(warm) <= (1.0 - _SPARE_FROM) * settings.max_age_seconds
        )
        with self._changed:
            again = self._asked.pop(key, False)
            self._asked[key] = True
            if len(self._asked) > _KEYS_REMEMBERED:
                self._asked.pop(next(iter(self._asked)))
            ready = self._booting.count(key) + sum(warm.key == key for warm in self._idle)
            free = self._settings.spares - len(self._booting)
            if not again or self._closed or free <= 0 or ready >= self._settings.spares:
                return
            if not ending and key not in self._breaking:
                return
            self._booting.append(key)
            self._evict(key)
        self._background.begin(lambda: self._boot_spare(job, key))

    def _boot_spare(self, job: Job, key: _PoolKey) -> None:
        sandbox = None
        try:
            sandbox = self._start(job, key.numpy)
        except EvaluatorBroken:
            # The next trial that needs a sandbox reports the error.
            return
        finally:
            with self._changed:
                self._booting.remove(key)
                if sandbox is not None and not self._closed:
                    self._keep(_PooledSandbox(sandbox, key), 0)
                    sandbox = None
                self._changed.notify()
            if sandbox is not None:
                sandbox.close()


def _failed(kind: FailureKind, detail: str, job: Job) -> Outcome:
    return Outcome(None, Failure(kind, detail), wall_seconds=job.limits.wall_seconds)


class BackgroundTasks:
    """Short jobs in the background, awaited at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()

    def begin(self, chore: Callable[[], None]) -> None:
        """Has `chore` done by a thread of its own.

        An engine that does not answer costs one line: the container ends by itself when its
        streams break, and a later sweep takes what could not be removed.
        """

        def do() -> None:
            try:
                chore()
            except Unavailable as error:
                log.warning("sandbox: %s", error)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=do, name="sandbox chore", daemon=True)
        with self._lock:
            self._threads.add(thread)
            thread.start()

    def finish(self) -> None:
        """Waits for what was begun; what hangs is left to the end of this process."""
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_FINISHING_SECONDS)
