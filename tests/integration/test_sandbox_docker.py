"""The Docker sandbox against the contract."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from app.adapters.sandbox import container_connection, docker, frames, warm_sandbox
from app.adapters.sandbox.bundle import (
    compiled_elsewhere,
    frame_of,
    harness_frame,
    harness_texts,
)
from app.adapters.sandbox.containers import IMAGE
from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox, profile
from app.adapters.sandbox.engine import DEFAULT_IMAGE
from app.adapters.sandbox.engine_socket import engine_answers
from app.adapters.sandbox.images import Images
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.warm_sandbox import WarmSandbox
from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import Job, Mode
from app.ports.protocols import Sandbox
from tests.contracts.sandbox import (
    BROKEN,
    LIMITS,
    POOL,
    SAMPLE_OF_BROKEN,
    SQUARE,
    WHOLE_CORPUS,
    SandboxContract,
    last_outcome,
    metrics,
    problem,
    require_a_name,
)

OWNER = os.environ.setdefault("SANDBOX_TEST_OWNER", f"tests-{uuid4().hex[:12]}")
"""Labels what these tests and the processes they start make, so that others may use the engine."""


def require_engine() -> None:
    """Skips with the reason where no container of the default image can be started."""
    if not engine_answers(30.0):
        pytest.skip("no Docker engine answers")
    if not Images().has_default():
        pytest.skip(
            f"no image {DEFAULT_IMAGE}: docker build -t {DEFAULT_IMAGE} app/adapters/sandbox/image"
        )


def docker_sandbox(pool: PoolSettings = POOL, *, runtime: str = "") -> DockerSandbox:
    """Returns a sandbox of containers as a deployment has it, or skips with the reason."""
    require_engine()
    settings = ContainerSettings(runtime, seccomp=profile("", IMAGE / "seccomp.json"), owner=OWNER)
    return DockerSandbox(pool, settings=settings)


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox()
    yield sandbox
    sandbox.close()


@pytest.mark.docker
class TestContainers(SandboxContract):
    broken = tuple(BROKEN) if WHOLE_CORPUS else SAMPLE_OF_BROKEN

    @pytest.fixture
    def sandbox(self, containers: Sandbox) -> Sandbox:
        return containers

    def test_tools_know_the_name_of_the_user(self, sandbox: Sandbox, mode: Mode) -> None:
        require_a_name(sandbox, mode)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("program", "share", "held_up_seconds", "detail"),
    [
        (b"while True: pass", 0.01, 30.0, "the sandbox had to be destroyed"),
        (b"import time\ntime.sleep(60)", 0.1, 2.5, "no result within 1 s"),
    ],
    ids=["computes", "waits"],
)
def test_a_container_that_computes_and_does_not_answer_is_ended_from_outside(
    monkeypatch: pytest.MonkeyPatch,
    program: bytes,
    share: float,
    held_up_seconds: float,
    detail: str,
) -> None:
    held_up = held_up_at_the_deadline(held_up_seconds)
    monkeypatch.setattr(frames, "harness_frame", lambda: held_up)
    monkeypatch.setattr(container_connection, "_COMPUTING_SHARE", share)  # also of a busy machine
    monkeypatch.setattr(warm_sandbox, "BACKSTOP_SECONDS", 90.0)  # its engine may be as slow
    job = Job(problem(), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)
    endless = replace(job, programs=((".py", program),), limits=replace(LIMITS, wall_seconds=1.0))

    # Closed also where this fails: other tests look for what this process has left.
    with closing(docker_sandbox(PoolSettings(max_sandboxes=1, spares=0))) as sandbox:
        failure = last_outcome(sandbox, endless).failure

        assert failure is not None
        assert failure.kind is FailureKind.TIMEOUT
        assert detail in failure.detail
        assert metrics(sandbox.run(job)) == {"combined_score": 25}


def held_up_at_the_deadline(seconds: float) -> bytes:
    """Returns a harness that waits so long before it ends a trial."""
    texts = dict(harness_texts())
    texts["trial.py"] += f"""
_end_of_trial = TrialRun._end

def _end_late(trial):
    if trial._usage.stopped_by == "timeout":
        time.sleep({seconds})
    return _end_of_trial(trial)

TrialRun._end = _end_late
"""
    return frame_of(texts)


CROWD = b"""
import os, time
def solve(x):
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(60)
    time.sleep(60)
"""


@pytest.mark.docker
def test_where_the_kernel_refuses_no_fork_too_many_processes_end_a_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = dict(harness_texts())  # as in gVisor
    texts["probes.py"] += "\ndef bound_of_processes(layout, fork_filter):\n    return ''\n"
    monkeypatch.setattr(frames, "harness_frame", lambda: frame_of(texts))
    sandbox = docker_sandbox(PoolSettings(max_sandboxes=1, spares=0))
    job = Job(problem(), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)
    crowd = replace(job, programs=((".py", CROWD),), limits=replace(LIMITS, processes=24))

    failure = sandbox.run(crowd).failure

    assert failure == Failure(FailureKind.RUNTIME, "more than 24 processes and threads at once")
    assert metrics(sandbox.run(replace(job, limits=crowd.limits))) == {"combined_score": 25}
    claimed = {row.name for row in sandbox.protections() if row.on}
    assert "a bound on the processes of a trial" in claimed
    sandbox.close()


OF_NO_VERSION = bytes(8)
"""What no interpreter has compiled."""


@pytest.mark.docker
def test_one_container_of_an_image_compiles_the_harness_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreign = compiled_elsewhere(harness_frame(), OF_NO_VERSION)
    monkeypatch.setattr(frames, "harness_frame", lambda: foreign)
    compiled: list[bytes] = []

    def boot(*arguments: Any) -> WarmSandbox:
        booted = WarmSandbox(*arguments)
        compiled.append(booted.compiled)
        return booted

    monkeypatch.setattr(docker, "WarmSandbox", boot)
    sandbox = docker_sandbox()
    for mode in Mode:
        job = Job(problem(), "evaluate", ((".py", SQUARE),), LIMITS, mode)
        assert metrics(sandbox.run(job)) == {"combined_score": 25}
    sandbox.close()
    assert [bool(each) for each in compiled] == [True, False]
