"""Containers of a Docker engine without privileges: what could differ from an ordinary engine."""

from collections.abc import Iterator

import pytest

from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.pool import PoolSettings
from app.domain.evaluation import FailureKind
from app.domain.problem import Job, Mode
from app.ports.protocols import Sandbox
from tests.contracts.attack_outcomes import IN_THE_ZYGOTE, Outcomes, same
from tests.contracts.attacks import Attack
from tests.contracts.sandbox import FRUGAL, SQUARE, kind, last_outcome, metrics, problem
from tests.contracts.sandbox_attacks import SampledAttackContract
from tests.contracts.sandbox_neighbours import LOOKING, NeighbourContract
from tests.integration.rootless_engine import rootless_engine
from tests.integration.test_sandbox_claims import broken_claims, outside_of_sandboxes
from tests.integration.test_sandbox_docker import docker_sandbox, require_engine

pytestmark = [pytest.mark.docker, pytest.mark.slow]

NEIGHBOURS = (
    "a file under /tmp", "shared memory by its name", "a server on an abstract address",
    "arguments and environment of other processes",
)  # fmt: skip


@pytest.fixture(scope="module")
def rootless() -> Iterator[DockerSandbox]:
    require_engine()
    engine = rootless_engine()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOCKER_HOST", engine.address)
        sandbox = docker_sandbox(PoolSettings(max_sandboxes=4, spares=0))
        yield sandbox
        sandbox.close()
    engine.stop()


def test_only_what_needs_cgroups_may_be_missing(rootless: DockerSandbox) -> None:
    missing = [row.name for row in rootless.protections() if not row.on]
    assert all("cgroup" in name for name in missing)


def test_a_probe_can_do_nothing_that_is_claimed_to_be_impossible(rootless: DockerSandbox) -> None:
    with outside_of_sandboxes() as outside:
        assert broken_claims(rootless, outside) == {}


@pytest.mark.parametrize("mode", Mode)
def test_a_program_is_scored(rootless: Sandbox, mode: Mode) -> None:
    job = Job(problem(), "evaluate", ((".py", SQUARE),), mode=mode)
    assert metrics(rootless.run(job)) == {"combined_score": 25}


def test_cpu_time_is_limited(rootless: Sandbox) -> None:
    program = b"while True:\n    pass\n"
    job = Job(problem(), "evaluate", ((".py", program),), FRUGAL, Mode.GUARDED)
    assert kind(last_outcome(rootless, job)) is FailureKind.TIMEOUT


class TestRootlessContainersUnderAttack(SampledAttackContract):
    counted: bool

    @pytest.fixture
    def sandbox(self, rootless: DockerSandbox) -> Sandbox:
        rows = {protection.name: protection.on for protection in rootless.protections()}
        self.counted = rows["memory limit of all processes together by a cgroup"]
        return rootless

    def outcomes(self, attack: Attack) -> Outcomes:
        if attack.name == "memory of sockets" and not self.counted:
            # No cgroup counts what the kernel holds, so buffers keep their default size (208 KiB)
            # and descriptors end the attack: 125 pairs of sockets, 26 MiB a process.
            return same({FailureKind.RUNTIME})
        if attack.name == "a process that cannot be read" and not self.counted:
            return IN_THE_ZYGOTE[attack.name]
        return super().outcomes(attack)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_nothing_of_the_evaluator_is_found(rootless: Sandbox, name: str) -> None:
    assert name in LOOKING
    NeighbourContract().test_nothing_of_the_evaluator_is_found(rootless, name)
