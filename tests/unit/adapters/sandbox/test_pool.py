"""A pool whose sandboxes are lost: how often a job is repeated."""

from typing import Any, cast

import pytest

from app.adapters.sandbox.pool import Pool, PoolSettings
from app.adapters.sandbox.warm_sandbox import SandboxLost, WarmSandbox
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits


class Lost:
    """A sandbox that ends during each trial."""

    boot_seconds = 0.0
    clean = False
    started = 0.0
    served = 0
    isolation: dict[str, Any] = {}  # noqa: RUF012  it stays empty

    def __init__(self, ran: list[Job]) -> None:
        self._ran = ran

    def run(self, job: Job) -> Any:
        self._ran.append(job)
        raise SandboxLost("it ended")

    def interrupt(self) -> None: ...

    def starved(self) -> bool:
        return False

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("wall_seconds", "times", "kind"),
    [
        (3600.0, 3, FailureKind.SANDBOX_VIOLATION),
        (0.0, 1, FailureKind.TIMEOUT),
    ],
    ids=["long before its deadline", "at its deadline"],
)
def test_a_job_is_repeated_until_it_has_had_its_time(
    wall_seconds: float, times: int, kind: FailureKind
) -> None:
    ran: list[Job] = []
    pool = Pool(
        lambda job, numpy: cast(WarmSandbox, Lost(ran)), PoolSettings(max_sandboxes=1, spares=0)
    )
    job = Job(Evaluator("e", {}), "evaluate", ((".py", b"x"),), Limits(wall_seconds=wall_seconds))

    outcome = pool.run(job)
    pool.close()

    assert len(ran) == times
    assert outcome.failure is not None
    assert outcome.failure.kind is kind
    assert "it ended" in outcome.failure.detail
