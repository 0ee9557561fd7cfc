"""The attack corpus: whole behind two kinds of isolation, a sample behind the others.

`make attacks` tries the whole corpus behind every kind but "bare".
"""

from collections.abc import Iterator

import pytest

from app.adapters.sandbox.process import ProcessSandbox
from app.domain.evaluation import FailureKind
from app.ports.protocols import Sandbox
from tests.contracts.attack_outcomes import HONEST, Outcomes, same
from tests.contracts.attacks import Attack
from tests.contracts.sandbox_attacks import ATTACKS, SAMPLED, AttackContract, SampledAttackContract
from tests.contracts.sandbox_neighbours import NeighbourContract
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind


@pytest.fixture(scope="module")
def processes() -> Iterator[Sandbox]:
    sandbox = ProcessSandbox()
    missing = [p.name for p in sandbox.protections() if not p.on and "cgroup" not in p.name]
    if missing:
        sandbox.close()
        pytest.skip(f"this machine's process sandbox does not claim: {'; '.join(missing)}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("unprivileged")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def bare() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("bare")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox()
    yield sandbox
    sandbox.close()


class TestProcessesUnderAttack(AttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, processes: Sandbox) -> Sandbox:
        return processes


@pytest.mark.slow
class TestUnprivilegedProcessesUnderAttack(SampledAttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, unprivileged: Sandbox) -> Sandbox:
        return unprivileged


class TestBareProcessesUnderAttack(AttackContract):
    """Without namespaces: the sample, but for what fills a disk.

    There nothing bounds the size of all files together, and the disk is the machine's.
    """

    attacks = tuple(
        attack
        for attack in ATTACKS
        if attack.name in SAMPLED and attack.name not in ("disk fill", "inode fill")
    )

    @pytest.fixture
    def sandbox(self, bare: Sandbox) -> Sandbox:
        return bare

    def outcomes(self, attack: Attack) -> Outcomes:
        if attack.name == "own memory scan":
            return Outcomes({FailureKind.RUNTIME})  # Landlock hides /proc
        if attack.name == "become root":
            return same({FailureKind.RUNTIME} | HONEST)  # a worker's root without capabilities
        return super().outcomes(attack)


@pytest.mark.slow
@pytest.mark.docker
class TestContainersUnderAttack(AttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, containers: Sandbox) -> Sandbox:
        return containers
