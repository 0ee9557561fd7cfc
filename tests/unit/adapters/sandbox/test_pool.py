"""A pool of sandboxes: which are booted, kept, replaced and ended, and how often a job is repeated.

The sandboxes are simulated; `tests/integration/test_sandbox_spares.py` and
`test_sandbox_lifetime.py` have real ones.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest

from app.adapters.sandbox.connection import Loss, SandboxLost
from app.adapters.sandbox.frames import TrialReport
from app.adapters.sandbox.pool import Pool, PoolSettings
from app.adapters.sandbox.warm_sandbox import WarmSandbox
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Limits, Mode
from app.ports.protocols import NEVER


class Lost:
    """A sandbox that ends during each trial."""

    boot_seconds = 0.0
    clean = False
    started = 0.0
    served = 0
    isolation: dict[str, Any] = {}  # noqa: RUF012  it stays empty

    def __init__(self, ran: list[Job], loss: Loss) -> None:
        self._ran = ran
        self._loss = loss

    def run(self, job: Job) -> Any:
        self._ran.append(job)
        raise SandboxLost("it ended")

    def interrupt(self) -> None: ...

    def loss(self) -> Loss:
        return self._loss

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("wall_seconds", "loss", "times", "kind", "detail"),
    [
        (3600.0, Loss.UNKNOWN, 3, FailureKind.SANDBOX_VIOLATION, "it ended"),
        (0.0, Loss.UNKNOWN, 1, FailureKind.TIMEOUT, "it ended"),
        (3600.0, Loss.MEMORY, 1, FailureKind.MEMORY, "256 MiB"),
        (3600.0, Loss.KERNEL, 1, FailureKind.SANDBOX_VIOLATION, "it ended the kernel"),
    ],
    ids=["long before its deadline", "at its deadline", "by memory", "with its kernel"],
)
def test_a_job_is_repeated_until_it_has_had_its_time_or_is_to_blame(
    wall_seconds: float, loss: Loss, times: int, kind: FailureKind, detail: str
) -> None:
    ran: list[Job] = []
    pool = Pool(
        lambda job, numpy: cast(WarmSandbox, Lost(ran, loss)),
        PoolSettings(max_sandboxes=1, spares=0),
    )
    job = Job(
        Evaluator("e", {}),
        "evaluate",
        ((".py", b"x"),),
        Limits(wall_seconds=wall_seconds, memory_mib=256),
    )

    outcome = pool.run(job)
    pool.close()

    assert len(ran) == times
    assert outcome.failure is not None
    assert outcome.failure.kind is kind
    assert detail in outcome.failure.detail


JOB = Job(Evaluator("e", {}), "evaluate", ((".py", b"x"),), mode=Mode.GUARDED)
HEADER = {
    "stopped_by": "", "oom_kills": 0, "statuses": [], "cpu_seconds": 0.0, "wall_seconds": 0.0,
    "peak_kib": 0, "evaluator_lost": False,
}  # fmt: skip
RESULT = b'{"result": {"metrics": {"combined_score": 1.0}, "artifacts": {}}}'
REPORT = TrialReport(HEADER, RESULT, (b"", b"", b"", b""))
SECONDS = 60.0


class Booted:
    """A sandbox in which every trial succeeds."""

    boot_seconds = 1.0
    clean = True
    isolation: dict[str, Any] = {}  # noqa: RUF012  it stays empty

    def __init__(self, closed: Callable[[], None], trial_seconds: float) -> None:
        self.started = time.monotonic()
        self.served = 0
        self._closed = closed
        self._trial_seconds = trial_seconds
        self._trial = threading.Lock()

    def run(self, job: Job) -> TrialReport:
        assert self._trial.acquire(blocking=False), "two trials at once"
        time.sleep(self._trial_seconds)
        self.served += 1
        self._trial.release()
        return REPORT

    def silent(self) -> bool:
        return True

    def interrupt(self) -> None: ...

    def close(self) -> None:
        self._closed()


class Machine:
    """Boots sandboxes and counts them.

    Attributes:
      booted: The jobs for which one was begun to boot.
      alive: Sandboxes that are booted and not closed.
      held_up: Cleared, boots wait.
    """

    def __init__(self, **settings: Any) -> None:
        self.booted: list[Job] = []
        self.alive = 0
        self.held_up = threading.Event()
        self.held_up.set()
        self.trial_seconds = 0.0
        self._lock = threading.Lock()
        self.pool = Pool(self._start, PoolSettings(**settings))

    def _start(self, job: Job, numpy: bool) -> WarmSandbox:
        with self._lock:
            self.booted.append(job)
        assert self.held_up.wait(SECONDS)
        if job.evaluator.digest == "broken":
            raise EvaluatorBroken("no module", where="evaluator.py", remedy="Correct it")
        with self._lock:
            self.alive += 1
        return cast(WarmSandbox, Booted(self._close, self.trial_seconds))

    def _close(self) -> None:
        with self._lock:
            self.alive -= 1

    def boots(self, *jobs: Job) -> list[bool]:
        """Runs jobs in turn; returns whether each paid for a boot."""
        return [self.pool.run(job).boot_seconds > 0.0 for job in jobs]


def until(true: Callable[[], bool]) -> None:
    """Waits for what a thread of the pool does."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def of(digest: str) -> Job:
    return replace(JOB, evaluator=Evaluator(digest, {}))


def test_many_threads_share_a_few_sandboxes() -> None:
    machine = Machine(max_sandboxes=2, spares=0)
    machine.trial_seconds = 0.001
    with ThreadPoolExecutor(16) as threads:
        outcomes = list(threads.map(machine.pool.run, [JOB] * 32))
    assert all(outcome.failure is None for outcome in outcomes)
    assert sum(outcome.boot_seconds > 0.0 for outcome in outcomes) == len(machine.booted) <= 2
    machine.pool.close()
    assert machine.alive == 0


def test_problems_take_turns_when_there_is_one_sandbox() -> None:
    machine = Machine(max_sandboxes=1, spares=0)
    assert machine.boots(of("one"), of("two"), of("one")) == [True] * 3
    machine.pool.close()
    assert machine.alive == 0


def test_a_sandbox_is_replaced_after_its_share_of_trials() -> None:
    machine = Machine(max_trials=2, spares=0)
    assert machine.boots(*[JOB] * 5) == [True, False, True, False, True]
    machine.pool.close()


def test_a_sandbox_is_replaced_when_it_is_old() -> None:
    machine = Machine(max_age_seconds=0.0, spares=0)
    assert machine.boots(JOB, JOB) == [True, True]
    machine.pool.close()


def test_the_first_job_of_a_kind_boots_no_spare() -> None:
    machine = Machine(max_sandboxes=1, spares=1, max_trials=1)
    kinds = [
        replace(JOB, mode=mode, limits=Limits(memory_mib=memory_mib))
        for mode in Mode
        for memory_mib in (200, 201)
    ]
    machine.boots(*kinds)
    machine.pool.close()
    assert machine.booted == kinds  # none is a spare


def test_there_are_never_more_sandboxes_than_allowed() -> None:
    machine = Machine(max_sandboxes=1, spares=1, max_trials=2)
    for number in range(14):
        machine.pool.run(of(f"problem {number % 3}"))
        assert machine.pool.ready_sandboxes() <= 2
    until(lambda: machine.alive <= 2)  # those that are ending
    assert len(machine.booted) > 3
    machine.pool.close()
    assert machine.alive == 0


def test_a_spare_is_booted_when_a_sandbox_nears_its_end() -> None:
    machine = Machine(max_sandboxes=1, spares=1, max_trials=10)
    booted = []
    for _ in range(8):
        machine.pool.run(JOB)
        booted.append(len(machine.booted))
    until(lambda: machine.pool.ready_sandboxes() == 2)
    machine.pool.close()
    assert booted[:7] == [1] * 7


def test_a_trial_never_waits_for_the_boot_of_a_spare() -> None:
    machine = Machine(max_sandboxes=2, spares=1, max_trials=5)
    machine.boots(*[JOB] * 3)
    machine.held_up.clear()
    machine.pool.run(JOB)
    until(lambda: len(machine.booted) == 2)
    assert machine.boots(JOB) == [False]
    assert machine.pool.ready_sandboxes() == 0
    machine.held_up.set()
    machine.pool.close()
    assert machine.alive == 0


def test_a_spare_is_kept_ready_for_a_problem_that_lost_a_sandbox() -> None:
    machine = Machine(max_sandboxes=1, spares=1)
    machine.boots(JOB)
    machine.pool._give_back(machine.pool._take(JOB, fresh=False, stop=NEVER), fit=False)
    machine.boots(JOB)
    until(lambda: machine.pool.ready_sandboxes() == 2)
    machine.pool.close()


def test_a_spare_that_cannot_boot_is_reported_by_the_trial_that_needs_it() -> None:
    machine = Machine(max_sandboxes=1, spares=1, max_trials=2)
    for _ in range(3):
        with pytest.raises(EvaluatorBroken):
            machine.pool.run(of("broken"))
    assert machine.boots(JOB) == [True]
    machine.pool.close()
