"""A pool whose sandboxes are lost: how often a job is repeated."""

from typing import Any, cast

import pytest

from app.adapters.sandbox.pool import Pool, PoolSettings
from app.adapters.sandbox.warm_sandbox import Loss, SandboxLost, WarmSandbox
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits


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
