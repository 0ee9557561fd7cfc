"""How warm sandboxes are kept, replaced and ended."""

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from app.adapters.sandbox import cgroup
from app.adapters.sandbox.bundle import BOOTSTRAP
from app.adapters.sandbox.choose import choose
from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox
from app.adapters.sandbox.engine_socket import engine_answers
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.orphans import OwnedContainer, labels, orphaned, remove_orphans
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.config.settings import SandboxSettings
from app.domain.problem import Job, Mode
from app.ports.protocols import Sandbox, Stopped, Unavailable
from tests.contracts.sandbox import LIMITS, SQUARE, Withdrawal, metrics, problem
from tests.integration.test_sandbox_docker import OWNER, docker_sandbox

JOB = Job(problem(), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)

WORKERS_EVALUATOR = b"""
import runpy

def evaluate(path):
    runpy.run_path(path)
    return {}
"""
WORKERS_JOB = Job(problem(WORKERS_EVALUATOR, "a worker's"), "evaluate", ((".py", b""),))


def containers_of_worker() -> Sandbox:
    return DockerSandbox(settings=ContainerSettings(owner=OWNER))


def idle(_: Sandbox) -> None:
    time.sleep(600)


def stuck(sandbox: Sandbox) -> None:
    sandbox.run(replace(WORKERS_JOB, programs=((".py", b"while True: pass"),)))


@contextlib.contextmanager
def worker(
    make: Callable[[], Sandbox], then: Callable[[Sandbox], None]
) -> Iterator[psutil.Process]:
    """Runs a worker with a warm sandbox, until it is killed: a fork of this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            gc.freeze()
            tempfile.tempdir = None
            sandbox = make()
            sandbox.run(WORKERS_JOB)
            os.write(writing, b"warm")
            then(sandbox)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)
    os.close(writing)
    try:
        assert os.read(reading, 4) == b"warm"
        yield psutil.Process(pid)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def sandbox_processes() -> set[int]:
    """Returns the processes of this process's sandboxes, without those of its servers."""
    pids: set[int] = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended, and a test before left it a zombie
            if BOOTSTRAP in child.cmdline():
                pids |= {process.pid for process in (child, *child.children(recursive=True))}
    return pids


@pytest.mark.timing
@pytest.mark.parametrize("then", [idle, stuck], ids=["idle", "in a trial"])
def test_sandboxes_end_with_a_worker_that_is_killed(
    then: Callable[[Sandbox], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with worker(ProcessSandbox, then) as killed:
        time.sleep(0.3)
        started = killed.children(recursive=True)
        assert started
        killed.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timing
def test_the_next_worker_removes_the_folders_of_one_that_was_killed_with_its_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with worker(ProcessSandbox, idle) as killed:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        ProcessSandbox().close()
        assert list(tmp_path.iterdir()) != [], "those of a worker that lives are left alone"
        started = killed.children(recursive=True)
        for process in (*started, killed):  # as the kernel does at the end of a container
            process.send_signal(signal.SIGSTOP)
        for process in (*started, killed):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(started, timeout=60)
    assert list(tmp_path.iterdir()) != []

    ProcessSandbox().close()

    assert list(tmp_path.iterdir()) == []


def test_closing_leaves_no_process_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = sandbox_processes()
    sandbox = ProcessSandbox()
    sandbox.run(JOB)
    assert sandbox_processes() - before
    sandbox.close()
    sandbox.close()
    assert sandbox_processes() == before
    assert list(tmp_path.iterdir()) == []


def test_closing_a_bare_sandbox_waits_for_no_ended_process() -> None:
    def closing_seconds() -> float:
        settings = PoolSettings(max_sandboxes=1, spares=0)
        sandbox = ProcessSandbox(settings, levels=("bare",), engine=())
        sandbox.run(JOB)
        began = time.monotonic()
        sandbox.close()
        return time.monotonic() - began

    assert any(closing_seconds() < 4.0 for _ in range(3))  # it would wait for five


def test_a_bare_sandbox_that_hangs_ends_with_all_that_it_started() -> None:
    source = b"import os, time\nfor _ in range(3): os.fork()\ntime.sleep(600)\n"
    job = replace(JOB, programs=((".py", source),))
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0), levels=("bare",), engine=())
    before = sandbox_processes()

    withdrawal = Withdrawal()

    def run() -> None:
        with contextlib.suppress(Stopped):
            sandbox.run(job, withdrawal)

    trial = threading.Thread(target=run)
    trial.start()
    until = time.monotonic() + 60.0
    while len(sandbox_processes() - before) < 10 and time.monotonic() < until:
        time.sleep(0.05)
    started = [psutil.Process(pid) for pid in sandbox_processes() - before]
    for process in started:
        if BOOTSTRAP in process.cmdline() and process.ppid() == os.getpid():
            process.suspend()

    withdrawal.ask()
    trial.join()
    sandbox.close()

    _, alive = psutil.wait_procs(started, timeout=30)
    assert len(started) >= 10
    assert alive == []


def test_a_closed_sandbox_is_unavailable() -> None:
    sandbox = ProcessSandbox()
    sandbox.close()
    with pytest.raises(Unavailable):
        sandbox.run(JOB)


def test_a_sandbox_survives_the_thread_that_booted_it() -> None:
    sandbox = ProcessSandbox()
    booter = threading.Thread(target=sandbox.run, args=(JOB,))
    booter.start()
    booter.join()
    time.sleep(0.2)
    assert sandbox.run(JOB).boot_seconds == 0.0
    sandbox.close()


@pytest.mark.timing
def test_a_sandbox_that_is_killed_is_replaced_without_losing_its_trial() -> None:
    sandbox = ProcessSandbox()
    before = sandbox_processes()
    sandbox.run(JOB)
    for pid in sandbox_processes() - before:
        with contextlib.suppress(ProcessLookupError):  # it ends with one that was killed before it
            os.kill(pid, signal.SIGKILL)
    outcome = sandbox.run(JOB)
    assert metrics(outcome) == {"combined_score": 25}
    assert outcome.boot_seconds > 0.0
    sandbox.close()


def test_a_missing_interpreter_is_unavailable() -> None:
    sandbox = ProcessSandbox(environments=Environments("/nonexistent/python"))
    with pytest.raises(Unavailable):
        sandbox.run(JOB)
    sandbox.close()


def test_a_process_sandbox_claims_no_cgroup_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cgroup, "parent", lambda: None)
    sandbox = ProcessSandbox(levels=("bare",), engine=())
    protections = {row.name: row for row in sandbox.protections()}
    sandbox.close()
    missing = protections["memory limit of all processes together by a cgroup"]
    assert not missing.on
    assert "cgroups" in missing.remedy


def test_the_imports_of_an_evaluator_are_paid_once_per_sandbox() -> None:
    text = b"""
import sys
import heavy

def evaluate(path):
    from numpy import polynomial
    fresh = "numpy.polynomial" in BEFORE
    return {"loads": heavy.LOADS, "fresh": fresh, "at": heavy.AT}

BEFORE = set(sys.modules)
"""
    heavy = (
        b"import time\nLOADS = globals().get('LOADS', 0) + 1\ntime.sleep(0.3)\nAT = time.time()\n"
    )
    evaluator = problem(text, "heavy", **{"heavy.py": heavy})
    sandbox = ProcessSandbox()
    for mode in Mode:
        job = replace(JOB, evaluator=evaluator, mode=mode)
        first, second = sandbox.run(job), sandbox.run(job)
        assert first.boot_seconds > 0.3
        assert second.boot_seconds == 0.0
        assert metrics(second)["loads"] == 1
        assert metrics(second)["fresh"] is True  # preloaded: imported before the evaluator was
        assert metrics(second)["at"] == metrics(first)["at"]  # the same import, not a new one
    sandbox.close()


def test_bare_programs_reach_neither_sockets_nor_settings_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "parent", lambda: None)  # which would count files in memory
    tmp_path.chmod(0o777)
    program = f"""
import errno, os, resource, socket
def solve(x):
    seen = []
    for attempt in (
        lambda: socket.socket(socket.AF_UNIX).connect({str(tmp_path / "s")!r}),
        lambda: os.memfd_create("m"),
        lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (9, 9)),
    ):
        try:
            attempt()
            seen.append("it worked")
        except OSError as error:
            seen.append(errno.errorcode[error.errno])
    return len(socket.socketpair()) if seen == ["EAFNOSUPPORT", "EPERM", "EPERM"] else str(seen)
""".encode()
    sandbox = ProcessSandbox(levels=("bare",), engine=())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        (tmp_path / "s").chmod(0o777)
        for mode in Mode:
            outcome = sandbox.run(replace(JOB, mode=mode, programs=((".py", program),)))
            assert metrics(outcome) == {"combined_score": 2}
    sandbox.close()


def test_a_missing_engine_is_unavailable_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    started = time.monotonic()
    sandbox = DockerSandbox(engine_seconds=2.0)
    with pytest.raises(Unavailable):
        sandbox.run(JOB)
    assert not engine_answers(1.0)
    assert isinstance(choose(SandboxSettings()), ProcessSandbox)
    with pytest.raises(Unavailable):
        choose(SandboxSettings(backend="docker"))
    assert time.monotonic() - started < 120.0


NOW = 1_000_000.0


def gone(changed: dict[str, str], *, created: float = NOW, runs: bool = True) -> bool:
    """Returns whether a container with these labels is an orphan."""
    started = {"0123456789ab": NOW - 3600.0}
    return orphaned(OwnedContainer({**labels(""), **changed}, created, runs), NOW, started.get)


def test_a_living_worker_has_no_orphans_and_a_dead_one_has() -> None:
    assert not gone({})
    assert not gone({}, created=NOW - 3600.0, runs=False)
    assert gone({"evoqueue.started": "1"})
    assert gone({"evoqueue.pid": "none"})


def test_a_worker_in_a_container_lives_as_long_as_the_container() -> None:
    elsewhere = {"evoqueue.place": "another list of processes"}
    assert not gone({**elsewhere, "evoqueue.container": "0123456789ab"})
    assert gone({**elsewhere, "evoqueue.container": "ffffffffffff"})
    restarted_since = NOW - 7200.0
    assert gone({**elsewhere, "evoqueue.container": "0123456789ab"}, created=restarted_since)


def test_a_container_of_another_machine_that_runs_is_no_orphan() -> None:
    elsewhere = {"evoqueue.place": "another machine", "evoqueue.container": ""}
    assert not gone(elsewhere, created=NOW - 86_400.0)
    assert not gone(elsewhere, created=NOW - 60.0, runs=False)
    assert gone(elsewhere, created=NOW - 3600.0, runs=False)


@pytest.mark.timing
@pytest.mark.docker
def test_containers_end_with_a_worker_that_is_killed() -> None:
    docker_sandbox().close()
    with worker(containers_of_worker, stuck) as killed:
        time.sleep(0.3)
        killed.send_signal(signal.SIGKILL)
    assert containers_left_of(killed.pid) == []


@pytest.mark.docker
def test_each_trial_has_a_container_of_its_own_by_setting() -> None:
    sandbox = docker_sandbox(PoolSettings(max_trials=1, spares=0))
    assert [sandbox.run(JOB).boot_seconds > 0.0 for _ in range(2)] == [True, True]
    sandbox.close()
    assert containers_left_of(os.getpid()) == []


@pytest.mark.docker
def test_cleanup_removes_orphans_of_its_own_deployment_only() -> None:
    sandbox = docker_sandbox()
    sandbox.run(JOB)
    command = ["docker", "run", "-d"]
    for name, value in {**labels(OWNER), "evoqueue.started": "1"}.items():
        command += ["--label", f"{name}={value}"]
    image = "evoqueue-sandbox:1"
    left = subprocess.run([*command, image, "sleep", "600"], capture_output=True, text=True)
    assert left.returncode == 0, left.stderr
    assert remove_orphans(20.0, "another deployment") == 0
    assert remove_orphans(20.0, OWNER) == 1
    assert sandbox.run(JOB).boot_seconds == 0.0
    gone = subprocess.run(["docker", "inspect", left.stdout.strip()], capture_output=True)
    assert gone.returncode != 0
    sandbox.close()


def containers_left_of(pid: int) -> list[str]:
    """Returns the ids of a worker's containers, giving the engine time to remove them."""
    until = time.monotonic() + 60.0
    command = ["docker", "ps", "-aq", "--filter", f"label=evoqueue.owner={OWNER}"]
    command += ["--filter", f"label=evoqueue.pid={pid}"]
    while True:
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        if not listed.stdout or time.monotonic() > until:
            return listed.stdout.split()
        time.sleep(0.2)


@pytest.mark.timing
@pytest.mark.docker
def test_the_next_worker_removes_a_container_that_cannot_end_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    docker_sandbox().close()
    mine = docker_sandbox(PoolSettings(max_sandboxes=1, spares=0))
    mine.run(JOB)
    with worker(containers_of_worker, stuck) as killed:
        command = ["docker", "ps", "-q", "--filter", f"label=evoqueue.pid={killed.pid}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        started = listed.stdout.split()
        assert started
        subprocess.run(["docker", "pause", *started], check=True, capture_output=True)
        killed.send_signal(signal.SIGKILL)
    time.sleep(2.0)
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == started  # paused: it cannot notice that its worker is gone
    monkeypatch.setenv("EVOQ_DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("EVOQ_SANDBOX__OWNER", OWNER)
    start_worker()
    assert containers_left_of(killed.pid) == []
    assert mine.run(JOB).boot_seconds == 0.0
    mine.close()


START = """
from types import SimpleNamespace as Has
import workers.lifecycle
queues = Has(consume_from={"cpu": None})
workers.lifecycle._context_or_exit = lambda: None  # there is no ledger
workers.lifecycle.prepare(sender=Has(app=Has(amqp=Has(queues=queues))))
"""


def start_worker() -> None:
    """Has another process do what a worker of the queue `cpu` does when it starts."""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", START], cwd=root, check=True, timeout=200)
