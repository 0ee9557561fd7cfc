"""Memory cgroups around sandboxes that are child processes."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.sandbox import cgroup
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.evaluation import FailureKind
from app.domain.problem import Job, Mode
from tests.contracts.sandbox import (
    LIMITS,
    SQUARE,
    WHOLE_CORPUS,
    SampledSandboxContract,
    kind,
    metrics,
    problem,
)
from tests.integration.test_sandbox_lifetime import idle, worker
from workers.harness import processes

JOB = Job(problem(), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)
POOL = PoolSettings(max_sandboxes=1, spares=0)
# Each within its own limit, and together over the sandbox's, before a measurement is due.
GREEDY = b"""
import mmap, os, time
def solve(x):
    for _ in range(8):
        if os.fork() == 0:
            block = mmap.mmap(-1, 200 << 20)
            for at in range(0, len(block), 4096):
                block[at] = 1
            time.sleep(60)
    time.sleep(60)
"""


@pytest.fixture
def folder() -> Path:
    found = cgroup.parent()
    if found is None:
        pytest.skip("this user may not make memory cgroups here")
    return found


def left(folder: Path) -> list[Path]:
    return list(folder.glob(f"evoq-{os.getpid()}-*"))


def test_programs_together_are_ended_by_the_kernel_and_counted(folder: Path) -> None:
    sandbox = ProcessSandbox(POOL)
    for _ in range(2):
        assert kind(sandbox.run(replace(JOB, programs=((".py", GREEDY),)))) is FailureKind.MEMORY
        outcome = sandbox.run(JOB)
        assert metrics(outcome) == {"combined_score": 25}
        assert outcome.boot_seconds == 0.0  # the sandbox itself outlived it
    sandbox.close()


def test_a_cgroup_is_removed_with_its_sandbox(folder: Path) -> None:
    before = len(left(folder))
    sandbox = ProcessSandbox(POOL)
    sandbox.run(JOB)
    assert len(left(folder)) == before + 1
    sandbox.close()
    assert len(left(folder)) == before


@pytest.mark.timing
def test_the_next_worker_removes_the_cgroups_of_a_killed_one(folder: Path) -> None:
    with worker(ProcessSandbox, idle) as killed:
        mine = f"evoq-{killed.pid}-*"
        assert list(folder.glob(mine))
        killed.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60.0
    while list(folder.glob(mine)) and time.monotonic() < until:
        cgroup.remove_empty(folder)
        time.sleep(0.1)
    assert not list(folder.glob(mine))


# Which directory is ours, from what the kernel says.  Version 2 could not be had for these tests.

MOUNTS_1 = "35 24 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
MOUNTS_2 = "35 24 0:30 / {root} rw,relatime - cgroup2 cgroup2 rw\n"


def own(tmp_path: Path, groups: str, mounts: str) -> tuple[Path, bool]:
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mountinfo").write_text(mounts)
    return cgroup._own(tmp_path / "cgroup", tmp_path / "mountinfo")


def test_the_directory_of_version_one_is_found(tmp_path: Path) -> None:
    found = own(tmp_path, "5:cpu,cpuacct:/x\n4:memory:/worker/7\n0::/\n", MOUNTS_1)
    assert found == (Path("/sys/fs/cgroup/memory/worker/7"), False)


def test_the_directory_of_version_two_is_found_where_it_has_memory(tmp_path: Path) -> None:
    mine = tmp_path / "fs" / "user.slice" / "mine"
    mine.mkdir(parents=True)
    (mine / "cgroup.controllers").write_text("cpu memory pids\n")
    mounts = MOUNTS_2.format(root=tmp_path / "fs")
    assert own(tmp_path, "0::/user.slice/mine\n", mounts) == (mine, True)
    (mine / "cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(LookupError):
        own(tmp_path, "0::/user.slice/mine\n", mounts)


def test_a_cgroup_of_version_two_takes_no_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def mkdir(path: Path) -> None:
        os.mkdir(path)
        made.append(path)
        for name in ("memory.max", "memory.swap.max", "memory.events", "cgroup.procs"):
            (path / name).touch()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = cgroup.make(tmp_path, 1 << 20)
    assert (made[0] / "memory.max").read_text() == str(1 << 20)
    assert (made[0] / "memory.swap.max").read_text() == "0"
    group.take(1)
    assert not group.starved()
    group.counter.write_text("low 0\noom 3\noom_kill 2\n")
    assert group.starved()


@pytest.fixture(scope="module")
def measured() -> Iterator[ProcessSandbox]:
    if cgroup.parent() is None:
        pytest.skip("this user may not make memory cgroups here")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cgroup, "parent", lambda: None)
        sandbox = ProcessSandbox(PoolSettings(max_sandboxes=8, spares=0))
    yield sandbox
    sandbox.close()


class TestProcessesWithoutCgroups(SampledSandboxContract):
    """The contract without a cgroup, which every other class here has where it can.

    In guarded mode, and in both by `make attacks`: on each push, the sums that only the zygote
    bounds are attacked in both modes in "bare", which has no cgroup either.
    """

    @pytest.fixture(
        params=list(Mode) if WHOLE_CORPUS else [Mode.GUARDED], ids=lambda mode: str(mode.value)
    )
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        mode: Mode = request.param
        return mode

    @pytest.fixture
    def sandbox(self, measured: ProcessSandbox) -> ProcessSandbox:
        return measured


def test_buffers_of_sockets_stay_small_where_nothing_counts_them(
    measured: ProcessSandbox, folder: Path
) -> None:
    """One process could fill a gigabyte: half of its descriptors times the kernel's largest."""
    source = b"""
import socket
def solve(x):
    ours, theirs = socket.socketpair()
    before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    for name in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        ours.setsockopt(socket.SOL_SOCKET, name, before + 65536)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) / before
"""
    job = replace(JOB, programs=((".py", source),))
    assert metrics(measured.run(job)) == {"combined_score": 1.0}
    counted = ProcessSandbox(POOL)
    larger = metrics(counted.run(job))["combined_score"]
    counted.close()
    assert larger > 1.0


def test_a_counter_of_a_cgroup_without_a_limit_is_ignored(tmp_path: Path) -> None:
    """As a rootless engine shows it, whose containers are in no cgroup of their own."""
    counter = tmp_path / "memory.oom_control"
    counter.write_text("oom_kill 0\n")
    for limit, believed in (("9223372036854771712", False), ("max", False), ("1000", True)):
        (tmp_path / "memory.limit_in_bytes").write_text(limit)
        found = processes.open_counter((str(counter),), 1000)
        assert (found >= 0) == believed
        if believed:
            os.close(found)
