"""An engine that is far away, that hangs, and that is restarted in the middle of the work."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from app.adapters.sandbox.choose import choose, clear_orphans
from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.engine_socket import engine_answers
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.config.settings import SandboxSettings
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits, Mode, Outcome
from app.ports.protocols import Misconfigured, Sandbox, Unavailable
from tests.contracts.attack_outcomes import HONEST, WRONG, Outcomes, same
from tests.contracts.attacks import Attack
from tests.contracts.sandbox import LIMITS, SQUARE, SampledSandboxContract, metrics, problem
from tests.contracts.sandbox_attacks import (
    CROWDING,
    ONE_OF_EACH,
    WHOLE_CORPUS,
    AttackContract,
    SampledAttackContract,
)
from tests.integration.own_engine import OwnEngine, own_engine
from tests.integration.test_sandbox_claims import broken_claims, outside_of_sandboxes
from tests.integration.test_sandbox_docker import OWNER, docker_sandbox, require_engine

JOB = Job(problem(), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)
POOL = PoolSettings(max_sandboxes=2, spares=0)
Ran = TypeVar("Ran")


@pytest.fixture
def silent_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An engine whose socket accepts connections and never says a word."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen(64)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'docker.sock'}")
        yield


@pytest.mark.usefixtures("silent_engine")
def test_an_engine_that_never_answers_is_unavailable_by_a_deadline() -> None:
    began = time.monotonic()
    sandbox = DockerSandbox(POOL, engine_seconds=1.0)
    for _ in range(2):
        with pytest.raises(Unavailable, match="does not answer"):
            sandbox.run(JOB)
    with pytest.raises(Unavailable):
        sandbox.protections()
    sandbox.close()
    assert time.monotonic() - began < 60.0


@pytest.mark.usefixtures("silent_engine")
def test_an_engine_that_never_answers_is_left_by_name_only() -> None:
    began = time.monotonic()
    assert not engine_answers(1.0)
    assert clear_orphans(SandboxSettings()) == 0
    with pytest.raises(Unavailable, match="no Docker engine answers"):
        choose(SandboxSettings(places=1, spares=0))
    sandbox = choose(SandboxSettings(backend="process", places=1, spares=0))
    assert isinstance(sandbox, ProcessSandbox)
    assert metrics(sandbox.run(JOB)) == {"combined_score": 25}
    sandbox.close()
    assert time.monotonic() - began < 120.0


@pytest.fixture
def far_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's engine, reached by TCP."""
    require_engine()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_forward_all, args=(listener,), daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        yield
        listener.shutdown(socket.SHUT_RDWR)


def _forward_all(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX)
            far.connect("/var/run/docker.sock")
            ends = [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_forward, args=(one, other, ends), daemon=True).start()


def _forward(one: socket.socket, other: socket.socket, ends: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while piece := one.recv(65_536):
            other.sendall(piece)
        other.shutdown(socket.SHUT_WR)
    ends.remove(one)
    if not ends:
        one.close()
        other.close()


@pytest.mark.docker
@pytest.mark.usefixtures("far_engine")
def test_an_engine_may_be_reached_by_tcp() -> None:
    sandbox = docker_sandbox(POOL)
    for mode in Mode:
        outcomes = [sandbox.run(replace(JOB, mode=mode)) for _ in range(5)]
        assert [metrics(outcome)["combined_score"] for outcome in outcomes] == [25] * 5
        assert sum(outcome.boot_seconds > 0.0 for outcome in outcomes) == 1
    assert clear_orphans(SandboxSettings(backend="docker", owner=OWNER)) == 0
    assert metrics(sandbox.run(JOB)) == {"combined_score": 25}
    sandbox.close()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnEngine]:
    engine = own_engine(tmp_path_factory.mktemp("engine"))
    yield engine
    engine.stop()


@pytest.fixture
def engine(started: OwnEngine, monkeypatch: pytest.MonkeyPatch) -> OwnEngine:
    """An engine of this test's own."""
    monkeypatch.setenv("DOCKER_HOST", started.address)
    return started


def patiently(run: Callable[[], Ran]) -> Ran:
    """Runs a job as its step does: what is unavailable is tried again later."""
    until = time.monotonic() + 200.0
    while True:
        try:
            return run()
        except Unavailable:
            assert time.monotonic() < until
            time.sleep(0.3)


@pytest.mark.timing
@pytest.mark.docker
@pytest.mark.slow
def test_a_restarted_engine_loses_no_trial_and_blames_no_program(
    engine: OwnEngine,
) -> None:
    settings = PoolSettings(max_sandboxes=4, spares=1)
    sandbox = DockerSandbox(settings, engine_seconds=5.0)
    slow = b"import time\ndef solve(x):\n    time.sleep(0.1)\n    return x * x\n"
    job = replace(JOB, programs=((".py", slow),))
    done: list[Outcome] = []
    stopped = threading.Event()

    def one_trial() -> None:
        if len(done) >= 60:
            stopped.wait(200.0)
        done.append(patiently(lambda: sandbox.run(job)))

    with ThreadPoolExecutor(4) as threads:
        work = [threads.submit(one_trial) for _ in range(100)]
        until = time.monotonic() + 100.0
        while len(done) < 30 and time.monotonic() < until:
            time.sleep(0.05)
        assert 30 <= len(done) < 75
        engine.stop()
        stopped.set()
        time.sleep(0.5)
        engine.start()
        for one in work:
            one.result()
    assert [outcome.failure for outcome in done] == [None] * 100
    assert all(metrics(outcome) == {"combined_score": 25} for outcome in done)
    sandbox.close()
    wait_until_empty(engine)


def wait_until_empty(engine: OwnEngine) -> None:
    until = time.monotonic() + 90.0
    while left := engine.docker("ps", "-aq").stdout.split():
        assert time.monotonic() < until, left
        time.sleep(0.2)


@pytest.mark.timing
@pytest.mark.docker
@pytest.mark.slow
def test_a_frozen_engine_is_unavailable_and_blames_no_program(engine: OwnEngine) -> None:
    sandbox = DockerSandbox(POOL, engine_seconds=2.0)
    hasty = replace(JOB, limits=replace(LIMITS, wall_seconds=1.5))
    patiently(lambda: sandbox.run(hasty))
    engine.signal(signal.SIGSTOP)
    try:
        for another in (hasty, replace(hasty, evaluator=problem(digest="another"))):
            began = time.monotonic()
            with pytest.raises(Unavailable):
                sandbox.run(another)
            assert time.monotonic() - began < 90.0
    finally:
        engine.signal(signal.SIGCONT)
    assert metrics(patiently(lambda: sandbox.run(JOB))) == {"combined_score": 25}
    sandbox.close()
    wait_until_empty(engine)


# gVisor, where it is installed.


@pytest.fixture(scope="module")
def gvisor(started: OwnEngine) -> Iterator[DockerSandbox]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOCKER_HOST", started.address)
        sandbox = docker_sandbox(PoolSettings(max_sandboxes=8, spares=0), runtime="runsc")
        try:
            sandbox.protections()
        except Misconfigured as error:
            pytest.skip(str(error))
        yield sandbox
        sandbox.close()


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_a_probe_in_gvisor_can_do_nothing_that_is_claimed_to_be_impossible(
    gvisor: DockerSandbox,
) -> None:
    with outside_of_sandboxes() as outside:
        assert patiently(lambda: broken_claims(gvisor, outside)) == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.usefixtures("engine")
class TestContainersOfGvisor(SampledSandboxContract):
    """In guarded mode, and whole in both by `make attacks`: gVisor is several times slower.

    On a push its engine has an image without NumPy, and two tests of limits, which take most of its
    time here, are left to the other kinds of isolation.
    """

    if not WHOLE_CORPUS:
        test_processes_of_one_program_are_not_counted_to_its_neighbour = None
        test_memory_of_many_processes_is_limited_together = None

    @pytest.fixture(
        params=list(Mode) if WHOLE_CORPUS else [Mode.GUARDED], ids=lambda mode: str(mode.value)
    )
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        mode: Mode = request.param
        return mode

    @pytest.fixture
    def sandbox(self, gvisor: Sandbox) -> Sandbox:
        return gvisor


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.usefixtures("engine")
class TestGvisorUnderAttack(SampledAttackContract):
    """No score is forged, no secret read, and the next program finds all as it was.

    One attack on each mechanism, in guarded mode; `make attacks` tries all, in both.
    The kind of failure may be another: what ends a program elsewhere may end gVisor here, and
    with it the sandbox.  On a crowded machine, gVisor does not start each time, and an honest
    program takes seconds in it.
    """

    if not WHOLE_CORPUS:
        attacks = ONE_OF_EACH
        test_an_attack_is_contained_in_compatible_mode = None

    @pytest.fixture
    def sandbox(self, gvisor: Sandbox) -> Sandbox:
        return gvisor

    def outcomes(self, attack: Attack) -> Outcomes:
        return same(frozenset(FailureKind) | HONEST | WRONG)

    def limits(self, attack: Attack) -> Limits:
        limits = super().limits(attack)
        return replace(
            limits,
            wall_seconds=max(4.0 if attack.name in CROWDING else 8.0, limits.wall_seconds),
            # To fill the inodes takes half a minute here.
            cpu_seconds=3.0 if attack.name == "inode fill" else max(3.0, limits.cpu_seconds),
        )

    @staticmethod
    def attack(sandbox: Sandbox, mode: Mode, source: str, limits: Limits) -> Outcome:
        return patiently(lambda: AttackContract.attack(sandbox, mode, source, limits))

    @staticmethod
    def honest(sandbox: Sandbox, mode: Mode, limits: Limits, problem: Evaluator) -> Outcome:
        return patiently(lambda: AttackContract.honest(sandbox, mode, limits, problem))
